"""Generic figures, one look: functions that draw arrays on axes and compute nothing of substance.

Needs matplotlib.
"""
