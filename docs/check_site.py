"""Tests of the site that ``make docs`` built: examples have figures, links have targets, no page loads remote files."""

import html
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[1] / "build" / "docs"
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def read(page: Path) -> str:
    """Return the HTML of a page."""
    return page.read_text(encoding="utf8")


def test_every_example_has_a_page():
    """The list EXAMPLES in conf.py is complete."""
    assert [path.stem for path in EXAMPLES] == sorted(
        path.stem for path in (SITE / "gallery").glob("*.html") if path.stem != "index"
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws_a_figure_within_a_minute(example):
    """Sphinx-gallery writes the figures and the running time to the page."""
    page = read(SITE / "gallery" / f"{example.stem}.html")
    figures = re.findall(r'src="(\.\./_images/sphx_glr_[^"]+_\d+\.png)"', page)
    assert figures
    assert all((SITE / "gallery" / figure).stat().st_size > 5_000 for figure in figures)
    minutes, seconds = re.search(
        r"Total running time of the script:</strong> \((\d+) minutes ([\d.]+) seconds", page
    ).groups()
    assert 60 * int(minutes) + float(seconds) < 60


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
