"""Tests of the site that ``make docs`` built: examples have figures, links have targets, no page loads remote files."""

import ast
import base64
import html
import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zipfile import ZipFile

import pytest

SITE = Path(__file__).parents[1] / "build" / "docs"
GALLERY = Path(__file__).parent / "gallery"
SCRIPTS = Path(__file__).parents[1] / "examples"
#: Paths of the examples and of the steps of the tutorial, without suffix, below the folder of the scripts.
EXAMPLES = sorted(path.relative_to(SCRIPTS).with_suffix("").as_posix() for path in SCRIPTS.rglob("*.py"))
TUTORIAL = [example for example in EXAMPLES if example.startswith("tutorial/")]
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


@pytest.mark.parametrize("step", TUTORIAL)
def test_a_notebook_of_the_tutorial_has_the_output_of_the_page(step):
    """Printed text and figures, also in the archive and in the copy that the page offers to download."""
    path = GALLERY / f"{step}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    page = SITE / "gallery" / f"{step}.html"
    figures = re.findall(r'<img src="((?:\.\./)+_images/sphx_glr_[^"]+_\d+\.png)"', read(page))
    images = [output["data"]["image/png"] for output in outputs if output["output_type"] == "display_data"]
    assert images
    assert [base64.b64decode(image) for image in images] == [(page.parent / src).read_bytes() for src in figures]
    printed = re.findall(r"sphx-glr-script-out[^>]*>.*?<pre>(.*?)</pre>", read(page), re.DOTALL)
    shown = [html.unescape(re.sub(r"<[^>]+>", "", text)).strip() for text in printed]
    assert shown
    stored = [output["text"][0].strip() for output in outputs if output["output_type"] == "stream"]
    # Pages have no spaces at the ends of lines.
    assert [re.sub(r" +$", "", text, flags=re.MULTILINE) for text in stored] == shown
    assert not any(output["output_type"] == "error" for output in outputs)
    with ZipFile(path.with_suffix(".zip")) as archive:
        assert archive.read(path.name) == path.read_bytes()
    (link,) = re.findall(r'href="([^"]+\.ipynb)"', read(page))
    assert (page.parent / unquote(link)).read_bytes() == path.read_bytes()


def test_the_front_page_shows_the_tutorial_and_each_step_links_to_the_next():
    """The steps are on the front page in their order, each with a picture."""
    cards = re.findall(
        r'class="sphx-glr-thumbcontainer".*?src="([^"]+)".*?href="([^"]+)"', read(SITE / "index.html"), re.DOTALL
    )
    assert [link for _, link in cards] == [f"gallery/{step}.html" for step in TUTORIAL]
    assert all((SITE / picture).stat().st_size > 2_000 for picture, _ in cards)
    for step, following in pairwise(TUTORIAL):
        text = read(SITE / "gallery" / f"{step}.html")
        assert re.search(rf'Next step: <a [^>]*href="{Path(following).name}\.html"', text), (
            f"{step}: no link to {following}"
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
