"""Tests of the site that ``make docs`` built: examples have figures, links have targets, no page loads remote files."""

import ast
import html
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[1] / "build" / "docs"
GALLERY = Path(__file__).parent / "gallery"
SCRIPTS = Path(__file__).parents[1] / "examples"
#: Paths of the examples and of the steps of the tutorial, without suffix, below the folder of the scripts.
EXAMPLES = sorted(path.relative_to(SCRIPTS).with_suffix("").as_posix() for path in SCRIPTS.rglob("*.py"))
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def read(page: Path) -> str:
    """Return the HTML of a page."""
    return page.read_text(encoding="utf8")


def test_every_example_has_a_page():
    """The list EXAMPLES in conf.py is complete."""
    pages = (path.relative_to(SITE / "gallery").with_suffix("") for path in (SITE / "gallery").rglob("*.html"))
    assert sorted(path.as_posix() for path in pages if path.name != "index") == EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_draws_a_figure_within_a_minute(example):
    """Sphinx-gallery writes the figures and the running time to the page."""
    path = SITE / "gallery" / f"{example}.html"
    page = read(path)
    figures = re.findall(r'src="((?:\.\./)+_images/sphx_glr_[^"]+_\d+\.png)"', page)
    assert figures
    assert all((path.parent / figure).stat().st_size > 5_000 for figure in figures)
    minutes, seconds = re.search(
        r"Total running time of the script:</strong> \((\d+) minutes ([\d.]+) seconds", page
    ).groups()
    assert 60 * int(minutes) + float(seconds) < 60


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_notebook_has_the_code_that_was_executed(example):
    """Sphinx-gallery executes the scripts, and writes notebooks of them to download."""
    notebook = json.loads((GALLERY / f"{example}.ipynb").read_text(encoding="utf8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = ast.parse((SCRIPTS / f"{example}.py").read_text(encoding="utf8"))
    code = ast.Module(script.body[1:], [])  # without the docstring
    assert ast.unparse(ast.parse("\n".join(cells[1:] if cells[0].startswith("%matplotlib") else cells))) == ast.unparse(
        code
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(SITE)))
def test_links_have_targets_and_nothing_is_loaded_from_elsewhere(page):
    """The site can be read from disk, offline."""
    text = re.sub(r"<pre>.*?</pre>", "", read(page), flags=re.DOTALL)
    for link in re.findall(r'(?:href|src)="([^"]*)"', text):
        parts = urlsplit(html.unescape(link))
        if not parts.scheme and parts.path:
            assert (page.parent / unquote(parts.path)).exists(), f"{page.name} links to {link}"
    for address in re.findall(r'<(?:script|img|link)[^>]* (?:src|href)="(https?:[^"]*)"', text):
        raise AssertionError(f"{page.name} loads {address}")
