"""Configuration of the site: `make docs` builds docs/_build/html, without the network.

`KERAS_VIT_GALLERY=no` shows the examples without running them, for a quick build.
"""

import os
import sys
import tomllib
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

import gallery  # noqa: E402

import keras_vit  # noqa: E402

URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["urls"]

project, author = "keras_vit", "The authors of keras_vit"
project_copyright = "the authors of keras_vit"
version = release = keras_vit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "domains_table",
    "families_pages",
    "licenses_table",
    "models_table",
]
exclude_patterns = [
    "_build",
    "_extensions",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.zip",
]
root_doc = "index"
highlight_language = "none"  # blocks without a language are commands and tables of names
default_role = "py:obj"  # `name` in a docstring links to what has this name

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The API pages: what the docstrings say, and nothing that has no docstring.
autosummary_generate = False
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_type_aliases = {"ClassNames": "keras_vit.images.class_names.ClassNames"}
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# Names of Keras and NumPy, written by docs/_inventories/make.py from the installed packages.
intersphinx_mapping = {
    "keras": ("https://www.tensorflow.org/api_docs/python/tf/", "_inventories/keras.inv"),
    "numpy": ("https://numpy.org/doc/stable/", "_inventories/numpy.inv"),
}
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = gallery.settings(HERE, execute=os.environ.get("KERAS_VIT_GALLERY") != "no")

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"keras_vit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["models_table.js"]
html_search_scorer = str(HERE / "_extensions" / "search_scorer.js")
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "source_repository": URLS["Source"] + "/",
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#b3261e", "color-brand-content": "#b3261e"},
    "dark_css_variables": {"color-brand-primary": "#ff8a80", "color-brand-content": "#ff8a80"},
}


def setup(app: object) -> None:
    """Prepares the examples before the gallery reads them."""
    gallery.copy_examples(HERE)
