"""The layout of the report page in windows of several widths, on paper, and for results that are hardly there."""

import itertools

import pytest
import torch
from explaining import point_explainer
from synthetic_results import evidence_result, partial_result, random_result

import geh_explain as geh
from geh_explain.units import PairSet

#: For each visible card its place, the widest vertical stretch without content, and the widths of card and content.
CARDS = """() => [...document.querySelectorAll(".card")].filter((card) => card.offsetParent).map((card) => {
  const { left, right, top, bottom } = card.getBoundingClientRect();
  const boxes = [...card.querySelectorAll("*")].filter((element) => {
    const graphic = ["rect", "path", "line", "text", "IMG", "INPUT", "I"].includes(element.tagName);
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    return (graphic || words) && !element.closest(".hidden, defs, [class*=background]");
  }).map((element) => element.getBoundingClientRect()).filter(({ width, height }) => width + height > 2);
  const inside = boxes.filter((box) => box.top < bottom && box.bottom > top).sort((a, b) => a.top - b.top);
  let reached = top, hole = 0;
  for (const box of inside) {
    hole = Math.max(hole, box.top - reached);
    reached = Math.max(reached, Math.min(bottom, box.bottom));
  }
  const outside = boxes.filter((box) => box.right > right + 1 || box.left < left - 1).length;
  const width = Math.max(...inside.map((box) => box.right)) - Math.min(...inside.map((box) => box.left));
  return { id: card.id, box: [left, right, top, bottom], hole: Math.max(hole, bottom - reached), outside, width };
})"""
#: Elements whose text is wider than they are, and hidden in part.
CUT = """() => [...document.querySelectorAll("body *")].filter((element) => element.clientWidth > 0
  && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible"
  && !element.closest(".hidden, svg"))
  .map((element) => element.id || element.className)"""


@pytest.fixture(scope="module")
def full_page(tmp_path_factory):
    """Return the page of a tested result with a surface, two accounts, images, and long names."""
    x = torch.rand(200, 12, generator=torch.Generator().manual_seed(0))
    explainer = point_explainer(lambda x: 5 * x[:, 0] * x[:, 1] + x[:, 2] ** 2 * x[:, 3] - x.sum(dim=1) ** 2 / 10)
    names = [f"a_rather_long_name_of_the_column_number_{i}_of_this_table" for i in range(12)]
    result = explainer.explain(x, groups=3, names=names, progress=False)
    surface = explainer.surface(x, pair=(0, 1), result=result, progress=False)
    accounts = explainer.explain_row(x[:2], data=x, names=names, progress=False)
    result = evidence_result(result, untested=3)
    path = tmp_path_factory.mktemp("pages") / "page.html"
    return result.report(path, surfaces=[surface], local=accounts, share=False)


@pytest.mark.parametrize("width", [400, 1300, 2000])
def test_the_page_fills_the_window_without_holes_and_nothing_is_cut_off(opened, full_page, width):
    page = opened(full_page, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT) == []
    cards = page.evaluate(CARDS)
    assert [card["id"] for card in cards] == ["list", "chosen", "heatmap-card", "network-card", "", ""]
    for card in cards:
        left, right = card["box"][:2]
        assert 0 <= left < right <= width, card
        assert card["outside"] == 0, card
        # Content is as wide as its box, and has no vertical holes.
        assert card["width"] > 0.85 * (right - left - 42), card
        assert card["hole"] < 70, card
    for a, b in itertools.combinations([card["box"] for card in cards], 2):
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    # Wide windows have columns that end together.
    lists = {card["id"]: card["box"] for card in cards if card["id"]}
    if width > 1000:
        assert lists["list"][2:] == lists["chosen"][2:]
        assert lists["heatmap-card"][2:] == lists["network-card"][2:]
        assert max(card["box"][1] for card in cards) > 0.95 * width
    texts = page.locator("body p").all_text_contents()
    assert "supported by held-out labels (false discovery rate 5 %)" in texts[0]
    assert " scores " in texts[1]


def test_printing_is_light_in_the_dark_theme_and_leaves_out_what_cannot_be_used(opened, full_page):
    page = opened(full_page, color_scheme="dark")
    cell = "getComputedStyle([...document.querySelectorAll('#heatmap .mark-rect.role-mark path')].at(-1)).fill"
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, " + cell + "]"
    dark = page.evaluate(colours)
    page.emulate_media(media="print", color_scheme="dark")
    back, front, light = page.evaluate(colours)
    assert back == "rgb(255, 255, 255)" != dark[0]
    assert front != dark[1]
    assert light != dark[2]
    shown = page.evaluate(
        "['.controls', '#download', '#list', '#rows'].map((e) => !!document.querySelector(e).offsetParent)"
    )
    assert shown == [False, False, True, True]
    # The rows do not scroll on paper.
    assert page.evaluate("getComputedStyle(document.getElementById('rows')).overflowY") == "visible"


def test_scores_are_shown_in_standard_deviations_of_the_output(opened, tmp_path):
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    explainer = point_explainer(lambda x: 3 * x[:, 0] * x[:, 1] + x[:, 2])
    result = explainer.explain(x, groups=2, progress=False)
    page = opened(result.report(tmp_path / "page.html", share=False))
    first = "document.querySelector('#table td.mean').textContent"
    assert page.evaluate(first) == "3.00"
    relative = 3 / result.output_std
    assert f"= {relative:.3g} standard deviations of the output" in page.text_content("#numbers")
    page.locator("#unit").select_option("std")
    page.wait_for_function(f"{first} !== '3.00'")
    assert float(page.evaluate(first)) == pytest.approx(relative, rel=5e-3)
    assert float(page.get_attribute("#groups li", "data-mean")) == pytest.approx(relative, rel=1e-3)
    # The other columns appear, in a table as wide as the page.
    hidden = page.locator("#table th.low")
    assert not hidden.is_visible()
    page.locator("#all").check()
    assert hidden.is_visible()
    assert page.evaluate("document.getElementById('list').offsetWidth > 1000")
    assert not page.locator("#unit-choice").is_hidden()
    assert opened(random_result(3).report(tmp_path / "other.html")).locator("#unit-choice").is_hidden()


def test_results_of_few_or_unknown_pairs_and_of_categories_have_pages_without_empty_boxes(opened, tmp_path):
    codes = torch.stack([torch.arange(90) % 3, torch.linspace(-1, 1, 90)], dim=1).double()
    categories = point_explainer(lambda x: (x[:, 0] == 2) * x[:, 1], units=geh.units.Categorical({"kind": 0}))
    sparse = partial_result(PairSet.touching([2], n_units=20))
    pages = {
        "one": (random_result(2), {"list", "chosen"}),
        "levels": (categories.explain(codes, groups=1, progress=False), {"list", "chosen"}),
        "three": (random_result(3), {"list", "chosen", "heatmap-card", "network-card"}),
        # A heatmap of which most is unknown is left out.
        "sparse": (sparse, {"list", "chosen", "network-card"}),
        "no groups": (random_result(8, groups=1), {"list", "chosen", "heatmap-card", "network-card"}),
    }
    for name, (result, expected) in pages.items():
        page = opened(result.report(tmp_path / f"{name}.html"), 1300)
        cards = page.evaluate(CARDS)
        assert {card["id"] for card in cards} == expected
        assert [card for card in cards if card["hole"] > 130 or card["outside"]] == []
        assert page.evaluate("document.documentElement.scrollWidth") == 1300
        if name == "no groups":
            assert page.text_content("#groups li span").startswith("all points")
        if name == "levels":
            assert page.text_content("#levels li span") == "kind: 0 → 2"
            assert page.locator("#levels li").count() == 3
            # The score of a pair with several levels has no sign.
            assert "Size of the effect" in page.text_content("#groups-caption")
            assert page.locator("#groups .track .up, #groups .track .down").count() == 0
