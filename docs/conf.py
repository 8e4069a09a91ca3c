"""How Sphinx builds the documentation (`make docs`)."""

project = "secondguess"
author = "The secondguess maintainers"
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"
napoleon_use_ivar = True
exclude_patterns = ["_build", "results"]

html_theme = "furo"
html_title = "secondguess"
