"""Is the site that ``make docs`` built whole? Examples with pictures, links that lead somewhere, nothing fetched."""

import html
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[1] / "build" / "docs"
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def read(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf8")


def test_there_is_a_page_for_every_example():
    """None was left out of the order in conf.py."""
    assert [path.stem for path in EXAMPLES] == sorted(
        path.stem for path in (SITE / "gallery").glob("*.html") if path.stem != "index"
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_made_a_picture_within_a_minute(example):
    """Sphinx-gallery notes how long each took, and keeps its figures."""
    page = read(SITE / "gallery" / f"{example.stem}.html")
    pictures = re.findall(r'src="(\.\./_images/sphx_glr_[^"]+_\d+\.png)"', page)
    assert pictures
    assert all((SITE / "gallery" / picture).stat().st_size > 5_000 for picture in pictures)
    minutes, seconds = re.search(
        r"Total running time of the script:</strong> \((\d+) minutes ([\d.]+) seconds", page
    ).groups()
    assert 60 * int(minutes) + float(seconds) < 60


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(SITE)))
def test_links_lead_somewhere_and_nothing_is_fetched_from_elsewhere(page):
    """A site can be read from a disk, offline."""
    text = re.sub(r"<pre>.*?</pre>", "", read(page), flags=re.DOTALL)
    for link in re.findall(r'(?:href|src)="([^"]*)"', text):
        parts = urlsplit(html.unescape(link))
        if not parts.scheme and parts.path:
            assert (page.parent / unquote(parts.path)).exists(), f"{page.name} leads to {link}"
    for address in re.findall(r'<(?:script|img|link)[^>]* (?:src|href)="(https?:[^"]*)"', text):
        raise AssertionError(f"{page.name} fetches {address}")
