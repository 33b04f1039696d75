"""The report page in a browser: no errors, no requests, the numbers of the result, and working controls."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from explaining import point_explainer
from synthetic_results import evidence_result, partial_result, random_result
from torch import nn

import geh_explain as geh
from geh_explain.scores.pair_names import join_names
from geh_explain.units import PairSet

#: For each mark of a chart its data and its box on the screen.
MARKS = """(selector) => [...document.querySelectorAll(selector)].map((element) => {
  const { x, y, width, height } = element.getBoundingClientRect();
  const { datum } = element.__data__;
  return { ...datum, box: [x, y, width, height], fill: getComputedStyle(element).fill,
           opacity: getComputedStyle(element).fillOpacity, stroke: element.getAttribute("stroke") };
})"""
CELLS = "#heatmap .mark-rect.role-mark path"
#: The pairs, numbers and bars of the table, in shown order; ends of bars are parts of the width of a track.
ROWS = """() => [...document.querySelectorAll("#table tbody tr")].map((row) => {
  const box = row.querySelector(".track").getBoundingClientRect();
  const ends = (part) => {
    const found = row.querySelector(`.track ${part}`);
    if (!found) return null;
    const { left, right } = found.getBoundingClientRect();
    return [(left - box.left) / box.width, (right - box.left) / box.width];
  };
  const text = (key) => row.querySelector(`td.${key}`)?.textContent;
  return { label: row.querySelector(".first button").title, pair: Number(row.dataset.pair), mean: text("mean"),
    decision: text("decision"), mark: row.querySelector(".mark")?.className, p: text("p"),
    score: ends(".score"), supported: ends(".supported"), wide: ends("b"), thick: ends("s") };
})"""


def marks(page, selector):
    return page.evaluate(MARKS, selector)


def rows(page):
    return page.evaluate(ROWS)


def number(text):
    return float(text.replace("−", "-"))


def colour(text):
    """Return red, green and blue of a colour that the browser computed, between 0 and 1."""
    values = [float(value) for value in re.findall(r"[\d.]+", text)][:3]
    return [value / 255 for value in values] if text.startswith("rgb") else values


def chosen(page):
    return page.text_content("#pair")


def wait_until_chosen(page, name):
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=name)


def label(row):
    return join_names(row["unit_i"], row["unit_j"])


def test_the_heatmap_shows_every_pair_twice_in_its_place_and_darker_the_stronger_it_is(page, result):
    cells = marks(page, CELLS)
    assert len(cells) == 30
    mean, names = result.geh.mean, result.names
    columns = sorted({cell["box"][0] for cell in cells})
    rows = sorted({cell["box"][1] for cell in cells})
    assert len(columns) == len(rows) == 6
    for cell in cells:
        i, j = names.index(cell["row"]), names.index(cell["column"])
        assert cell["mean"] == pytest.approx(mean[i, j], rel=1e-4)
        assert (cell["box"][0], cell["box"][1]) == (columns[j], rows[i])
    order = sorted(cells, key=lambda cell: cell["mean"])
    light = [sum(colour(cell["fill"])) for cell in order]
    assert light == sorted(light, reverse=True)
    assert light[0] > light[-1] + 0.8
    dotted = {mark["label"] for mark in marks(page, "#heatmap .mark-symbol.role-mark path")}
    assert dotted == {label(row) for _, row in result.table().iterrows() if row["stable"]}


def test_the_table_has_a_row_for_each_pair_and_its_bars_end_where_the_numbers_say(page, result):
    table, half, shown = result.table(), result.table(level=0.5), rows(page)
    assert [row["label"] for row in shown] == [label(row) for _, row in table.iterrows()]
    np.testing.assert_allclose([number(row["mean"]) for row in shown], table["mean"], rtol=5e-3)
    unit = shown[0]["score"][1] / table["mean"][0]  # length of a bar of score 1
    for key, low, high in (("wide", table.low, table.high), ("thick", half.low, half.high)):
        np.testing.assert_allclose([row[key] for row in shown], unit * np.stack([low, high], axis=1), atol=0.01)
    np.testing.assert_allclose([row["score"] for row in shown], [[0, unit * mean] for mean in table["mean"]], atol=0.01)
    # A filled or an open mark, and the same in words.
    assert ["yes" in row["mark"] for row in shown] == table["stable"].tolist()
    assert [row["decision"] for row in shown] == ["stable" if stable else "not stable" for stable in table["stable"]]
    assert 0 < table["stable"].sum() < len(table)


def test_choosing_a_pair_in_one_chart_shows_it_in_the_others(page, result):
    table = result.table()
    assert chosen(page) == label(table.iloc[0])
    cell = page.locator(CELLS).nth(7)
    data = marks(page, CELLS)[7]
    cell.click()
    wait_until_chosen(page, data["label"])
    outlined = [each for each in marks(page, CELLS) if each["stroke"]]
    assert {each["label"] for each in outlined} == {data["label"]}
    assert len(outlined) == 2
    assert page.get_attribute("#table tr.chosen .first button", "title") == data["label"]
    regions = result.regions(data["first"], data["second"])
    effects = page.evaluate("[...document.querySelectorAll('#groups li')].map((e) => [e.dataset.mean, e.innerText])")
    np.testing.assert_allclose([float(mean) for mean, _ in effects], regions["mean"], rtol=1e-4)
    for (_, words), (name, region) in zip(effects, regions.iterrows(), strict=True):
        assert words.startswith(f"group {name}\n{int(region['size'])} points")
        assert ("sign not clear" in words) == (region["low"] < 0 < region["high"])
    page.locator("#table tbody tr").nth(3).click()
    wait_until_chosen(page, label(table.iloc[3]))
    page.locator("#network").scroll_into_view_if_needed()
    strongest = max(marks(page, "#network .mark-rule.role-mark line"), key=lambda edge: edge["mean"])
    x, y, width, height = strongest["box"]
    page.mouse.click(x + width / 2, y + height / 2)
    wait_until_chosen(page, label(table.iloc[0]))


def test_the_slider_the_box_and_the_search_leave_what_they_should(page, result):
    table = result.table()
    page.locator("#threshold").fill("50")
    strong = table[table["mean"] >= table["mean"].max() / 2]
    page.wait_for_function(f"document.getElementById('count').textContent.startsWith('{len(strong)} of')")
    assert [each["label"] for each in rows(page)] == [label(row) for _, row in strong.iterrows()]
    pale = {each["label"] for each in marks(page, CELLS) if float(each["opacity"]) < 0.5}
    assert pale == {label(row) for _, row in table.iloc[len(strong) :].iterrows()}
    page.locator("#threshold").fill("0")
    page.locator("#accepted").check()
    assert page.text_content("#only-accepted").strip() == "stable only"
    sure = table[table["stable"]]
    page.wait_for_function(f"document.getElementById('count').textContent.startsWith('{len(sure)} of')")
    page.locator("#search").fill("WIND")
    both = sure[(sure["unit_i"] == "wind speed") | (sure["unit_j"] == "wind speed")]
    page.wait_for_function(f"document.getElementById('count').textContent.startsWith('{len(both)} of')")
    assert page.locator("#table tbody tr").count() == len(both) > 0
    page.locator("#search").fill("no such unit")
    page.wait_for_selector("#nothing:not([hidden])")
    page.locator("#search").fill("")
    page.wait_for_function(f"document.querySelectorAll('#table tbody tr').length === {len(sure)}")


def test_another_measure_shows_its_own_numbers(page, result):
    page.locator("#measure").select_option("aeh")
    table = result.table("aeh")
    page.wait_for_function("document.querySelector('#numbers dt').textContent === 'AEH'")
    assert [row["label"] for row in rows(page)] == [label(row) for _, row in table.iterrows()]
    np.testing.assert_allclose([number(row["mean"]) for row in rows(page)], table["mean"], rtol=5e-3)


def test_the_table_sorts_by_each_column(page):
    def column(key):
        return page.locator(f"#table tbody td.{key}").all_text_contents()

    for key in ("first", "mean", "low", "decision"):
        head = page.locator(f'#table th[data-key="{key}"] button')
        head.dispatch_event("click")  # one of them is hidden in narrow windows
        first = column(key)
        head.dispatch_event("click")
        second = column(key)
        assert first != second
        if key == "mean":
            numbers = [number(text) for text in second]
            assert sorted(numbers) in (numbers, numbers[::-1])
        if key == "decision":
            assert first[0] != second[0]
        sorting = page.locator(f'#table th[data-key="{key}"]').get_attribute("aria-sort")
        assert sorting in ("ascending", "descending")
        others = page.locator('#table th[aria-sort="none"]').count()
        assert others == page.locator("#table th[aria-sort]").count() - 1


def test_names_with_tags_are_shown_as_they_are_and_harm_nobody(page, result):
    assert page.title() == "Interactions in a network"
    evil = result.names[0]
    assert sum(evil in row["label"] for row in rows(page)) == 5
    shown = page.text_content("#table tbody") + "".join(page.locator("#heatmap text").all_text_contents())
    assert evil[:8] in shown  # cut in the middle
    page.locator(CELLS).first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "<" in page.text_content("#vg-tooltip-element")
    assert page.locator("#vg-tooltip-element img, #vg-tooltip-element script").count() == 0
    assert page.title() == "Interactions in a network"


def test_the_download_is_the_table(page, tmp_path, result):
    with page.expect_download() as waiting:
        page.locator("#download").click()
    waiting.value.save_as(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = result.table()
    assert [(row["unit i"], row["unit j"]) for row in rows] == list(zip(table["unit_i"], table["unit_j"], strict=True))
    for name in ("mean", "std", "low", "high"):
        np.testing.assert_allclose([float(row[name]) for row in rows], table[name], rtol=1e-3, atol=1e-4)
    assert [row["stable"] == "yes" for row in rows] == table["stable"].tolist()


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "plain", "a - b"]


def test_names_are_no_formulas_in_the_download_and_numbers_stay_numbers(opened, tmp_path):
    result = evidence_result(random_result(len(FORMULAS), groups=2, names=FORMULAS), untested=2)
    page = opened(result.report(tmp_path / "page.html"))
    with page.expect_download() as waiting:
        page.locator("#download").click()
    waiting.value.save_as(tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = {row[column] for row in rows for column in ("unit i", "unit j")}
    assert names == {"plain", "a - b", *(f"'{name}" for name in FORMULAS[:-2])}
    slopes = [float(row["slope"]) for row in rows if row["slope"]]
    assert min(slopes) < 0
    # A number is not quoted, so that a negative one is no text.
    assert f",{next(row['slope'] for row in rows if row['slope'].startswith('-'))}," in (
        tmp_path / "table.csv"
    ).read_text(encoding="utf-8")


def test_names_are_different_where_they_are_cut_and_hold_the_separator(opened, tmp_path):
    names = ["a", "b × c", "a × b", "c", "long " * 9 + "name", "another " + "long " * 9 + "name"]
    page = opened(random_result(6, groups=2, names=names).report(tmp_path / "page.html"))
    assert len({row["label"] for row in rows(page)}) == 15
    assert len(set(page.locator("#table td.first").all_text_contents())) == 15
    for texts in ("#heatmap .role-axis-label text", "#network .mark-text.role-mark text"):
        shown = page.locator(texts).all_text_contents()
        assert len(set(shown)) == 6
        assert {"a", "a × b"} < set(shown)


def test_a_page_of_tested_pairs_shows_supported_scores_beside_geh(opened, tmp_path, result):
    tested = evidence_result(result, untested=2)
    table, names = tested.table(), tested.names
    page = opened(tested.report(tmp_path / "page.html"))
    assert page.locator("#measure").input_value() == "supported"
    assert page.text_content("#only-accepted").strip() == "significant only"
    # The heatmap has the supported score below the diagonal, and GEH above it.
    mean, supported = tested.geh.pair_mean, tested.decisions().supported
    for cell in marks(page, CELLS):
        i, j = names.index(cell["row"]), names.index(cell["column"])
        values = supported if i > j else mean
        assert cell["value"] == pytest.approx(values[tested.pair(i, j)], rel=1e-4, abs=1e-6)
    shown = rows(page)
    assert [row["label"] for row in shown] == [label(row) for _, row in table.iterrows()]
    # A bar is the score, the one inside of it the supported part, of the pairs that were tested.
    unit = shown[0]["score"][1] / table["mean"][0]
    for row, expected in zip(shown, table.itertuples(), strict=True):
        assert row["score"][1] == pytest.approx(unit * expected.mean, abs=0.01)
        is_tested = expected.p_value == expected.p_value
        assert (row["supported"] is not None) == is_tested
        if is_tested:
            assert row["supported"][1] == pytest.approx(unit * expected.supported, abs=0.01)
        words = "significant, FDR 5 %" if expected.significant else "not significant" if is_tested else "not tested"
        assert row["decision"] == words
    # The page opens with the pair of the verdict.
    assert chosen(page) == label(table[table["significant"]].iloc[0])
    badges = page.locator("#badges li").all_text_contents()
    stable = tested.table(rule="sign").set_index(["unit_i", "unit_j"])["stable"]
    first = table[table["significant"]].iloc[0]
    network = "stable" if stable[first.unit_i, first.unit_j] else "not stable"
    assert badges == ["held-out labels: significant, FDR 5 %", f"network: {network}"]
    # Bars of pairs that are stable in the network have another colour.
    colours = page.evaluate(
        "[...document.querySelectorAll('#table .score')].map((e) => getComputedStyle(e).backgroundColor)"
    )
    expected = [stable[row.unit_i, row.unit_j] for row in table.itertuples()]
    assert len(set(colours)) == len(set(expected)) == 2
    assert len(set(zip(colours, expected, strict=True))) == 2
    assert chosen(page) in page.text_content(".verdict p + p").replace("\u00a0", " ")
    page.locator("#all").check()
    page.locator('#table th[data-key="p"] button').click()
    assert [row["p"] for row in rows(page)][-2:] == ["", ""]  # pairs that were not tested are last
    page.locator("#measure").select_option("geh")
    page.wait_for_function("document.getElementById('heatmap-score').textContent === 'GEH of each pair'")
    page.locator('#table th[data-key="mean"] button').click()
    assert rows(page)[0]["label"] == label(tested.table("geh").iloc[0])


def test_everything_can_be_reached_with_the_keyboard(page, result):
    table = result.table()
    page.locator("figure[tabindex]").first.focus()
    page.keyboard.press("ArrowRight")
    wait_until_chosen(page, label(table.iloc[1]))
    page.keyboard.press("ArrowLeft")
    wait_until_chosen(page, label(table.iloc[0]))
    page.locator("#rows").focus()
    page.keyboard.press("ArrowDown")
    wait_until_chosen(page, label(table.iloc[1]))
    page.locator("#table tbody button").nth(4).focus()
    page.keyboard.press("Enter")
    wait_until_chosen(page, label(table.iloc[4]))
    for tag in ("measure", "threshold", "accepted", "search", "all", "download"):
        page.locator(f"#{tag}").focus()
        assert page.evaluate("document.activeElement.id") == tag
    unnamed = page.evaluate(
        "[...document.querySelectorAll('figure[tabindex], [role=region], section')]"
        ".filter((f) => !(f.getAttribute('aria-labelledby') ?? '').split(' ').every(document.getElementById, document)"
        " || !f.getAttribute('aria-labelledby')).length"
    )
    assert unnamed == 0


def test_surfaces_and_images_appear_with_their_pair_alone(opened, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    explainer = geh.GEHExplainer(net, "2", posterior=geh.posterior.PointEstimate())
    x = torch.randn(60, 1, 6, 6)
    result = explainer.explain(x, groups=2, progress=False)
    (i, j), (k, m) = result.ranking().top(2)
    surface = explainer.surface(x, pair=(i, j), result=result, grid=6, progress=False)
    gallery = explainer.interpret(result, x, pairs=[(i, j)], k=4, ascent=False, progress=False)
    page = opened(result.report(tmp_path / "page.html", surfaces=[surface], gallery=gallery))
    shown = marks(page, "#surface .mark-rect.role-mark path")
    assert sorted(each["value"] for each in shown) == pytest.approx(sorted(surface.values.ravel()), rel=1e-3, abs=1e-6)
    images = page.evaluate("[...document.querySelectorAll('#images img')].map((i) => [i.alt, i.naturalWidth])")
    assert [alt for alt, _ in images] == [
        *(f"Inputs with the highest activation of {name}" for name in (i, j)),
        f"Inputs that activate both {i} and {j}",
    ]
    assert all(width > 100 for _, width in images)
    page.locator("#table tbody tr").nth(1).click()
    wait_until_chosen(page, join_names(k, m))
    page.wait_for_selector("#surface-figure[hidden]", state="attached")


def test_light_and_dark_differ_and_follow_the_reader(opened, tmp_path, result):
    path = result.report(tmp_path / "page.html")
    backs = []
    for scheme in ("light", "dark"):
        page = opened(path, color_scheme=scheme)
        backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs == ["rgb(255, 255, 255)", "rgb(21, 24, 28)"]
    page.emulate_media(color_scheme="light")
    strongest = max(marks(page, CELLS), key=lambda cell: cell["mean"])["label"]
    page.wait_for_function(
        "([selector, name]) => [...document.querySelectorAll(selector)].some((cell) => "
        "cell.__data__.datum.label === name && ['rgb(8, 48, 107)', 'color(srgb 0.0313726 0.188235 0.419608)'].includes("
        "getComputedStyle(cell).fill))",
        arg=[CELLS, strongest],
    )


def test_a_page_of_very_many_units_opens(opened, tmp_path):
    page = opened(random_result(150, draws=3).report(tmp_path / "page.html"))
    assert len(marks(page, CELLS)) == 60 * 59
    assert page.locator("#table tbody tr").count() == 200
    page.locator("#more").click()
    assert page.locator("#table tbody tr").count() == 1000
    assert "the 60 units with the strongest pairs, of 150" in page.text_content(".warnings")


def test_json_in_the_page_is_what_was_written(page, result):
    data = json.loads(page.text_content("#data"))
    assert data["names"] == result.names


def test_the_heatmap_shows_pairs_that_were_not_computed_as_grey_cells(opened, tmp_path):
    known = PairSet.touching([2], n_units=5)
    page = opened(partial_result(known).report(tmp_path / "page.html"))
    cells = marks(page, CELLS)
    assert len(cells) == 20
    grey = {(cell["row"], cell["column"]) for cell in cells if cell.get("unknown")}
    expected = np.argwhere(np.isnan(known.matrix(np.ones(4))))
    assert grey == {(f"unit {i}", f"unit {j}") for i, j in expected}
    assert {cell["fill"] for cell in cells if cell.get("unknown")} == {"rgb(196, 196, 196)"}
    assert "grey: not computed" in page.text_content("#heatmap-caption")
    assert "4 of 10 pairs were computed: those of unit 2" in page.text_content(".facts")


def test_a_surface_of_categories_has_their_levels_on_its_axes(opened, tmp_path):
    x = torch.stack([torch.arange(60) % 3, torch.arange(60) // 3 % 2], dim=1).double()
    units = geh.units.Categorical({"a": 0, "b": 1})
    explainer = point_explainer(lambda x: (x[:, 0] == 1) * x[:, 1], units=units)
    result = explainer.explain(x, groups=1, progress=False)
    surface = explainer.surface(x, pair=("a", "b"), progress=False)
    surface = replace(surface, levels=(("red", "<b>green</b>", "blue"), ("yes", "no")))
    page = opened(result.report(tmp_path / "page.html", surfaces=[surface], share=False))
    labels = page.locator("#surface .role-axis-label text").all_text_contents()
    assert {"red", "<b>green</b>", "blue", "yes", "no"} <= set(labels)
