"""Sphinx configuration of the site that ``make docs`` builds."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
from sphinx.application import Sphinx

from geh_explain import __version__

HERE = Path(__file__).parent
# The extensions mathml and notebooks are in this folder.
sys.path.insert(0, str(HERE))
matplotlib.use("Agg")

project = "geh_explain"
author = "The geh_explain developers"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "notebooks",
]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
# Functions in sphinx_gallery_conf cannot be cached, and Sphinx warns about that.
suppress_warnings = ["config.cache"]

autodoc_default_options = {"members": True}
# Overridden methods without a docstring are left out; they are documented in the base class.
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
# Types are part of the descriptions; in signatures they would take several lines.
autodoc_typehints = "none"
napoleon_google_docstring = False
# Attributes of a class are listed in the style of its parameters.
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_attr_annotations = False
# Literal blocks in docstrings are formulas; examples with >>> are highlighted as Python anyway.
highlight_language = "none"
# Typographic quotes would change primes in formulas.
smartquotes = False

html_theme = "furo"
html_title = f"geh_explain {version}"
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

#: Order of the examples in the gallery.
EXAMPLES = [
    "step1_table",
    "step2_vision",
    "step3_one_prediction",
    "step4_uncertainty_and_units",
    "step5_long_runs",
    "trained_network",
    "tabular_regression",
    "ensemble",
    "laplace_approximation",
    "sklearn_forest",
    "captum_workflow",
    "cnn_gallery",
    "resnet_channels",
    "image_patches",
    "transformer_tokens",
    "epistasis",
    "own_posterior",
]


def order(name: str) -> int:
    """Return the position of an example in the gallery; ``name`` is its file name."""
    return EXAMPLES.index(Path(name).stem)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "within_subsection_order": "conf.order",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "thumbnail_size": (600, 300),
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
}


def link_examples(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace links to example scripts, which work in the repository, by links to the pages of the gallery."""
    source[0] = re.sub(r"\]\((?:\.\./)+examples/([\w/]+)\.py\)", r"](/gallery/\1.rst)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+examples/((?:tutorial/)?)\)", r"](/gallery/\1index.rst)", source[0])


def separate_tutorial(app: Sphinx, name: str, source: list[str]) -> None:
    """Leave the tutorial out of the page of examples; it has an entry of its own."""
    if name == "gallery/index":
        source[0] = re.split(r"^Tutorial\n-+\n", source[0], maxsplit=1, flags=re.MULTILINE)[0]


def keep_colons(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Insert an empty comment before the docstring of an attribute or property.

    Otherwise napoleon takes the text before a colon in the first line for the type of the attribute.
    """
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def skip_tuple_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, whose docstrings say "Alias for field number 0"; the class lists them."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions above to the events of Sphinx."""
    app.connect("source-read", link_examples)
    app.connect("source-read", separate_tutorial)
    # Before napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
    app.connect("autodoc-skip-member", skip_tuple_fields)
    return {"parallel_read_safe": True}
