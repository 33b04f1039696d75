"""The layout of the report page in windows of several widths, on paper, and for results that are hardly there."""

import itertools
import json

import numpy as np
import pytest
import torch
from explaining import point_explainer
from page_boxes import CARDS, CUT, GRAPHICS, LINES, WIDE_CELLS, largest_empty_area, overlapping
from synthetic_results import evidence_result, partial_result, random_result
from torch import nn

import geh_explain as geh
from geh_explain.units import PairSet

WIDTHS = [400, 1300, 2000]


def tabular_page(path):
    """Write the page of a tested result with a surface, two accounts, and long names."""
    x = torch.rand(200, 12, generator=torch.Generator().manual_seed(0))
    explainer = point_explainer(lambda x: 5 * x[:, 0] * x[:, 1] + x[:, 2] ** 2 * x[:, 3] - x.sum(dim=1) ** 2 / 10)
    names = [f"a_rather_long_name_of_the_column_number_{i}_of_this_table" for i in range(12)]
    result = explainer.explain(x, groups=3, names=names, progress=False)
    surface = explainer.surface(x, pair=(0, 1), result=result, progress=False)
    accounts = explainer.explain_row(x[:2], data=x, names=names, progress=False)
    result = evidence_result(result, untested=3)
    return result.report(path, surfaces=[surface], local=accounts, share=False)


def vision_page(path):
    """Write the page of the channels of a layer, with exemplars, those of both units, and painted images."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(6 * 36, 4), nn.Tanh(), nn.Linear(4, 1))
    explainer = geh.GEHExplainer(net.eval(), "0", posterior=geh.posterior.PointEstimate())
    x = torch.rand(80, 1, 8, 8)
    result = explainer.explain(x, groups=1, progress=False)
    gallery = explainer.interpret(result, x, pairs=3, k=4, ascent={"steps": 2}, progress=False)
    return result.report(path, gallery=gallery, share=False)


def page_of_many_units(path):
    """Write the page of 70 tested units, whose names differ at their end only."""
    names = [f"expression of the gene ENSG{unit:011d}" for unit in range(70)]
    return evidence_result(random_result(70, names=names)).report(path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    writers = {"tabular": tabular_page, "vision": vision_page, "many": page_of_many_units}
    return {name: write(folder / f"{name}.html") for name, write in writers.items()}


@pytest.fixture(scope="module")
def full_page(pages):
    return pages["tabular"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["tabular", "vision", "many"])
def test_the_page_fills_the_window_without_holes_and_nothing_is_cut_off(opened, pages, name, width):
    page = opened(pages[name], width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT) == []
    cards = page.evaluate(CARDS)
    others = {"tabular": 2, "vision": 3, "many": 0}[name]
    assert [card["id"] for card in cards] == ["list", "chosen", "heatmap-card", "network-card"] + others * [""]
    for card in cards:
        left, right = card["box"][:2]
        assert 0 <= left < right <= width, card
        assert card["outside"] == 0, card
        # Content is as wide as its box, and has no vertical holes.
        assert card["width"] > 0.85 * (right - left - 42), card
        assert card["hole"] < 70, card
    for a, b in itertools.combinations([card["box"] for card in cards], 2):
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    # Numbers and ticks stay in their columns.
    assert page.evaluate(WIDE_CELLS) == []
    lines = page.evaluate(LINES)
    assert len(lines) > 60
    assert overlapping(lines) == []
    assert min(left for _, left, *_ in lines) >= 0
    assert max(line[2] for line in lines) <= width
    # No empty area is as large as the smallest card.
    height = int(page.evaluate("document.querySelector('main').getBoundingClientRect().bottom + scrollY"))
    boxes = [*page.evaluate(GRAPHICS), *(box for _, *box in lines)]
    smallest = min((box[1] - box[0]) * (box[3] - box[2]) for box in (card["box"] for card in cards))
    assert largest_empty_area(boxes, width, height) < smallest


@pytest.mark.parametrize("width", WIDTHS)
def test_wide_windows_have_two_and_three_columns_that_end_together(opened, pages, width):
    for name, path in pages.items():
        page = opened(path, width)
        boxes = {card["id"]: card["box"] for card in page.evaluate(CARDS)}
        left = {name: boxes[name][0] for name in ("list", "chosen", "heatmap-card", "network-card")}
        bottom = {name: boxes[name][3] for name in left}
        top = {name: boxes[name][2] for name in left}
        # A table of few pairs has the heatmap below it, in two columns.
        assert len(set(left.values())) == {400: 1, 1300: 2, 2000: 2 if name == "vision" else 3}[width]
        assert max(box[1] for box in boxes.values()) > 0.95 * width
        if width == 400:
            continue
        assert top["list"] == top["chosen"]
        # The last card of each column.
        ends = {left[name]: bottom[name] for name in sorted(left, key=bottom.get)}
        assert max(ends.values()) - min(ends.values()) < 1
        # The first screen has the verdict, the strongest pairs and the chosen one.
        rows = page.evaluate(
            "[...document.querySelectorAll('#table tbody tr')].map((e) => e.getBoundingClientRect().bottom)"
        )
        assert rows[4] < 900
        assert page.evaluate("document.getElementById('numbers').getBoundingClientRect().bottom") < 900


@pytest.mark.parametrize("width", [1300, 2000])
def test_choosing_pairs_without_a_surface_does_not_make_the_page_longer(opened, pages, width):
    for name in ("vision", "many"):
        page = opened(pages[name], width)
        height = page.evaluate("document.documentElement.scrollHeight")
        rows = page.locator("#table tbody tr")
        for row in (2, 9, 5, 0):
            pair = rows.nth(row).locator(".first button").get_attribute("title")
            rows.nth(row).click()
            page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=pair)
            page.wait_for_function("[...document.images].every((image) => image.complete)")
            assert page.evaluate("document.documentElement.scrollHeight") < height + 40


@pytest.mark.parametrize("width", WIDTHS)
def test_names_are_as_long_as_their_space_and_never_the_same(opened, pages, width):
    page = opened(pages["many"], width)
    data = json.loads(page.text_content("#data"))
    full = {
        name: [names[n] for names in data["chart_names"]]
        for n, name in enumerate(data["names"][u] for u in data["heatmap"])
    }
    for chart, count in (("#heatmap .role-axis-label text", 60), ("#network .mark-text.role-mark text", 30)):
        shown = page.locator(chart).all_text_contents()
        assert len(set(shown)) == count
        # None is cut a second time.
        assert all(any(text in names for names in full.values()) for text in shown)
    assert page.evaluate("document.querySelector('#table td.first button').title").startswith(
        "expression of the gene ENSG"
    )
    shown = page.evaluate(
        "[...document.querySelectorAll('#table td.first button')].slice(0, 50).map((e) => e.innerText)"
    )
    assert len(set(shown)) == 50
    assert ("expression" in shown[0]) == (width > 400)


def test_the_verdict_is_three_sentences_and_the_first_says_what_labels_support(opened, full_page):
    page = opened(full_page, 1300)
    sentences = [
        text.replace("\u00a0", " ").replace("\u2060", "") for text in page.locator(".verdict p").all_text_contents()
    ]
    assert len(sentences) == 3
    assert "supported by held-out labels (false discovery rate 5 %)" in sentences[0]
    assert " scores " in sentences[1]
    assert "score at most" in sentences[2]
    sizes = page.evaluate(
        "[...document.querySelectorAll('.verdict p')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert sizes[0] > 1.3 * sizes[1] == 1.3 * sizes[2]
    # The title of a cut name is the whole of it.
    cut = page.locator(".verdict .name").first
    assert "…" in cut.text_content()
    assert cut.get_attribute("title") == "a_rather_long_name_of_the_column_number_0_of_this_table"


def test_a_pair_has_its_share_of_the_variance_and_words_for_its_sign(opened, tmp_path):
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    explainer = point_explainer(lambda x: 3 * x[:, 0] * x[:, 1] - x[:, 1] * x[:, 2] + x[:, 2])
    result = explainer.explain(x, groups=1, progress=False)
    share = result.share(progress=False).pairs().set_index(["unit_i", "unit_j"])
    page = opened(result.report(tmp_path / "page.html"))
    sign = "Increasing both gives a {} output than the sum of their separate effects."
    for row, (pair, word) in enumerate(((("x0", "x1"), "larger"), (("x1", "x2"), "smaller"))):
        page.locator("#table tbody tr").nth(row).click()
        page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=" × ".join(pair))
        assert page.text_content("#pair-words") == sign.format(word)
        value = f"{100 * share.loc[pair, 'share']:.1f}\u00a0%"
        assert f"Share of variance{value}of the output" in page.text_content("#numbers")
    assert share.loc[("x0", "x1"), "share"] == pytest.approx(9 / 11, abs=0.1)
    # The bar of the whole variance: all interactions with their interval, and the largest pair.
    ends = page.evaluate(
        "[...document.querySelectorAll('.share i, .share b')].map((e) => e.getBoundingClientRect())"
        ".map(({ left, right }) => [left, right])"
    )
    left, width = page.evaluate("[document.querySelector('.share')].map((e) => [e.clientLeft, e.clientWidth])[0]")
    left += page.evaluate("document.querySelector('.share').getBoundingClientRect().left")
    all_of_them = result.share(progress=False)
    expected = [(0, all_of_them.overall), (0, share["share"].max()), (all_of_them.low, min(1, all_of_them.high))]
    np.testing.assert_allclose((np.array(ends) - left) / width, expected, atol=0.01)


def test_a_sign_that_differs_between_groups_is_said_with_the_groups_in_words(opened, tmp_path):
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = x[:, 1] + 6 * (x[:, 1] > 0) - 3  # two clusters
    result = point_explainer(lambda x: x[:, 0] * x[:, 1] ** 2 + x[:, 2]).explain(x, groups=2, progress=False)
    page = opened(result.report(tmp_path / "page.html"))
    assert page.text_content("#pair") == "x0 × x1"
    regions = result.regions("x0", "x1")
    assert sorted(regions["mean"] > 0) == [False, True]
    rules = [description.split(" (")[0].replace(">=", "≥") for description in result.group_descriptions]
    larger = int(np.argmax(regions["mean"]))
    expected = f"separate effects, where {rules[larger]}; smaller where {rules[1 - larger]}."
    assert page.text_content("#pair-words").replace("\u00a0", " ").endswith(expected)
    assert [
        text.split("group")[0].replace("\u00a0", " ") for text in page.locator("#groups li").all_text_contents()
    ] == rules


def test_a_pair_names_the_strongest_other_pairs_of_its_units(opened, pages):
    page = opened(pages["tabular"], 2000)
    rows = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [row.querySelector('.first button').title,"
        " row.querySelector('td.supported').textContent])"
    )
    chosen = page.text_content("#pair")
    lists = page.locator("#others > div")
    assert lists.count() == 2
    for unit, found in zip(chosen.split(" × "), lists.all(), strict=True):
        assert found.locator("h3").get_attribute("title") == unit
        expected = [row for row in rows if unit in row[0].split(" × ") and row[0] != chosen]
        shown = found.locator("li").evaluate_all(
            "(items) => items.map((item) => [item.querySelector('button').title, item.lastChild.textContent])"
        )
        assert len(shown) >= 3
        assert shown == expected[: len(shown)]
    page.locator("#others button").nth(1).focus()
    name = page.locator("#others button").nth(1).get_attribute("title")
    page.keyboard.press("Enter")
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=name)


def test_the_gallery_shows_both_units_and_painted_images_of_each_pair(opened, pages):
    page = opened(pages["vision"], 1300)
    cards = page.locator("#gallery .card")
    assert cards.count() == 3
    table = page.locator("#table tbody tr")
    for n in range(3):
        alts = cards.nth(n).locator("img").evaluate_all("(images) => images.map((image) => image.alt)")
        units = [alt.removeprefix("Inputs with the highest activation of ") for alt in alts[:4:2]]
        assert alts[4] == f"Inputs that activate both {units[0]} and {units[1]}"
        assert [alt.startswith("Input by gradient ascent for") for alt in alts[1::2]] == [True, True, True]
        words = cards.nth(n).locator(".small").text_content()
        score = table.nth(n).locator("td.mean").text_content()
        assert words.startswith(f"GEH {score} · ")
    # Exemplars are above painted images, in three columns of one width.
    boxes = cards.first.locator("img").evaluate_all(
        "(images) => images.map((e) => e.getBoundingClientRect()).map(({ left, top, width }) => [left, top, width])"
    )
    assert len({left for left, _, _ in boxes}) == 3
    assert len({round(top) for _, top, _ in boxes}) == 2
    assert len({round(width) for _, _, width in boxes}) == 1
    cards.nth(2).locator("button").click()
    page.wait_for_function(
        "(name) => document.getElementById('pair').textContent === name",
        arg=table.nth(2).locator(".first button").get_attribute("title"),
    )


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
    assert f"Relative size{relative:.3g}times the output's standard deviation" in page.text_content("#numbers")
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
