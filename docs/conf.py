"""Sphinx configuration of these pages; `scripts/docs` builds them without a network."""

import sys
from pathlib import Path

import captioning

sys.path.insert(0, str(Path(__file__).parent))  # for _ext

project = "captioning"
author = "The captioning authors"
project_copyright = f"2026, {author}"
release = version = captioning.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "_ext.api",
]
exclude_patterns = ["_build"]
needs_sphinx = "8.1"

html_theme = "furo"
html_title = "captioning"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has the types
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"

default_role = "py:obj"  # names in single backticks in docstrings link to documented objects

doctest_test_doctest_blocks = "default"

# The build checks links within these pages; for those to the web:
# sphinx-build -b linkcheck docs docs/_build/linkcheck
