"""Generic figures and the page of results: they draw what they are given.

Figures need matplotlib, the page needs Jinja2; the records of a page need neither.
"""
