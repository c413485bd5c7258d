"""How Sphinx builds these pages: `scripts/docs`. Nothing is fetched from a network."""

import os
import sys
from importlib.metadata import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # where the extensions are

project = "captioning"
author = "the authors of captioning"
release = version = metadata("captioning")["Version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "_ext.configuration_keys",
    "_ext.gallery",
    "_ext.offline",
    "_ext.options",
    "_ext.ranges",
    "_ext.references",
    "_ext.signatures",
]
exclude_patterns = ["_build", "_generated"]
needs_sphinx = "8.1"

html_theme = "furo"
html_title = "captioning"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Signatures are those of the source, see _ext/signatures.py. `autodoc_preserve_defaults` would put
# objects of Sphinx into the signatures that the parsers read their defaults from.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has the types
napoleon_google_docstring = True
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# Docstrings put names in single backticks: those that these pages document become links.
default_role = "py:obj"

nitpicky = True
nitpick_ignore_regex = [
    # Words in single backticks that name no documented object, such as arguments or files.
    ("py:obj", ".*"),
    # Types of Python and of other packages, whose inventories a build without a network has not,
    # and private ones. Names of ours that are written in full must be documented.
    ("py:(class|exc)", r"(?!captioning\.).*"),
]

doctest_test_doctest_blocks = "default"

# Links within these pages are checked by the build; those to the web only where there is one:
# sphinx-build -b linkcheck -D linkcheck_ignore= docs docs/_build/linkcheck
linkcheck_ignore = [r"https?://.*"]

GALLERY_MODEL = str(HERE.parent / "captioning" / "serving" / "demo.ckpt")
"""A checkpoint of a model of drawn scenes; none: what people might say of them."""

gallery_checkpoint = os.environ.get("CAPTIONING_GALLERY_MODEL", GALLERY_MODEL)
