"""How the documentation is built: ``make docs``."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
from sphinx.application import Sphinx

from geh_explain import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the extension mathml
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
]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # an example's order is a function

autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False  # a method is told of where it stands
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures stay short; types stand in the words
napoleon_google_docstring = False
napoleon_attr_annotations = False

html_theme = "furo"
html_title = f"geh_explain {version}"
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

#: The order in which a reader goes through the examples.
EXAMPLES = [
    *(
        "trained_network",
        "tabular_regression",
        "ensemble",
        "laplace_approximation",
        "sklearn_forest",
        "captum_workflow",
    ),
    *("cnn_gallery", "resnet_channels", "image_patches", "transformer_tokens", "own_posterior"),
]


def order(name: str) -> int:
    """Return an example's place."""
    return EXAMPLES.index(Path(name).stem)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "within_subsection_order": "conf.order",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
}


def examples_are_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead from links to scripts, which are right in the repository, to the pages made of them."""
    source[0] = re.sub(r"\]\((?:\.\./)+examples/(\w+)\.py\)", r"](/gallery/\1.rst)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+examples/?\)", r"](/gallery/index.rst)", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("source-read", examples_are_pages)
    return {"parallel_read_safe": True}
