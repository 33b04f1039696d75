"""The report page in a browser: no errors, no requests, the numbers of the result, and working controls."""

import csv
import json
import shutil
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

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tried in a browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium: install Debian's chromium-headless-shell")

EVIL = "<script>document.title = 'evil'</script>"
NAMES = [EVIL, "<img src=x onerror=\"document.title='evil'\">", "wind speed", "a × b", "temperature", "hour"]

#: For each mark of a chart its data and its box on the screen.
MARKS = """(selector) => [...document.querySelectorAll(selector)].map((element) => {
  const { x, y, width, height } = element.getBoundingClientRect();
  const { datum } = element.__data__;
  return { ...datum, box: [x, y, width, height], fill: getComputedStyle(element).fill,
           opacity: getComputedStyle(element).fillOpacity, stroke: element.getAttribute("stroke") };
})"""
CELLS = "#heatmap .mark-rect.role-mark path"
POINTS = "#forest .mark-symbol.role-mark path"
RULES = "#forest .mark-rule.role-mark line"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Return a function that opens a file; afterwards there were no errors, and no request but for the file."""
    wrong, asked, contexts = [], [], []

    def opened(path, **options):
        context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", timeout=20_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith("data:")] == [url for url in asked if url.endswith(".html")]
    assert len(asked) >= len(contexts)


@pytest.fixture(scope="module")
def result():
    return random_result(6, groups=3, names=NAMES, noise=0.9)


@pytest.fixture
def page(opened, result, tmp_path):
    return opened(result.report(tmp_path / "page.html"))


def marks(page, selector):
    return page.evaluate(MARKS, selector)


def chosen(page):
    return page.text_content("#pair")


def label(row):
    return join_names(row["unit_i"], row["unit_j"])


def test_the_heatmap_shows_every_pair_twice_in_its_place_and_darker_the_stronger_it_is(page, result):
    cells = marks(page, CELLS)
    assert len(cells) == 30
    mean = result.geh.mean
    columns = sorted({cell["box"][0] for cell in cells})
    rows = sorted({cell["box"][1] for cell in cells})
    assert len(columns) == len(rows) == 6
    for cell in cells:
        i, j = NAMES.index(cell["row"]), NAMES.index(cell["column"])
        assert cell["mean"] == pytest.approx(mean[i, j], rel=1e-4)
        assert (cell["box"][0], cell["box"][1]) == (columns[j], rows[i])
    order = sorted(cells, key=lambda cell: cell["mean"])
    light = [sum(map(int, cell["fill"].removeprefix("rgb(").removesuffix(")").split(","))) for cell in order]
    assert light == sorted(light, reverse=True)
    assert light[0] > light[-1] + 200


def test_the_forest_has_a_row_for_each_pair_and_its_marks_stand_where_the_numbers_say(page, result):
    table = result.table()
    points = marks(page, POINTS)
    assert [point["label"] for point in sorted(points, key=lambda point: point["box"][1])] == [
        label(row) for _, row in table.iterrows()
    ]
    middles = np.array([point["box"][0] + point["box"][2] / 2 for point in points])
    means = np.array([point["mean"] for point in points])
    slope, zero = np.polyfit(means, middles, 1)
    np.testing.assert_allclose(middles, zero + slope * means, atol=0.5)
    np.testing.assert_allclose(sorted(means), sorted(table["mean"]), rtol=1e-4)
    half = result.table(level=0.5)
    ends = {"thin": (table["low"], table["high"]), "thick": (half["low"], half["high"])}
    rules = [rule for rule in marks(page, RULES) if "label" in rule]
    assert len(rules) == 2 * len(table)
    drawn = np.array([(rule["box"][0], rule["box"][0] + rule["box"][2]) for rule in rules])
    for thickness, part in (("thin", drawn[: len(table)]), ("thick", drawn[len(table) :])):
        low, high = ((np.sort(part[:, side]) - zero) / slope for side in (0, 1))
        tolerance = 1 / slope
        np.testing.assert_allclose(low, np.sort(ends[thickness][0]), atol=tolerance)
        np.testing.assert_allclose(high, np.sort(ends[thickness][1]), atol=tolerance)
    unsure = {point["label"] for point in points if point["unsure"]}
    assert unsure == {label(row) for _, row in table[~table["stable"]].iterrows()}
    assert 0 < len(unsure) < len(table)


def test_choosing_a_pair_in_one_chart_shows_it_in_the_others(page, result):
    table = result.table()
    assert chosen(page) == label(table.iloc[0])
    cell = page.locator(CELLS).nth(7)
    data = marks(page, CELLS)[7]
    cell.click()
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=data["label"])
    outlined = [each for each in marks(page, CELLS) if each["stroke"]]
    assert {each["label"] for each in outlined} == {data["label"]}
    assert len(outlined) == 2
    in_forest = {each["label"]: each["fill"] for each in marks(page, POINTS)}
    assert [name for name, fill in in_forest.items() if fill == "rgb(213, 94, 0)"] == [data["label"]]
    assert page.text_content("#table tr.chosen td:nth-child(2)") == data["second"]
    regions = result.regions(data["first"], data["second"])
    shown = marks(page, "#groups .mark-symbol.role-mark path")
    np.testing.assert_allclose([each["mean"] for each in shown], regions["mean"], rtol=1e-4)
    assert [each["group"] for each in shown] == [f"{name} (7)" if name != "2" else "2 (6)" for name in regions.index]
    page.locator(POINTS).nth(3).click()
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=label(table.iloc[3]))
    page.locator("#network").scroll_into_view_if_needed()
    x, y, width, height = marks(page, "#network .mark-rule.role-mark line")[-1]["box"]
    page.mouse.click(x + width / 2, y + height / 2)
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=label(table.iloc[0]))


def test_the_slider_the_box_and_the_search_leave_what_they_should(page, result):
    table = result.table()
    page.locator("#threshold").fill("50")
    strong = table[table["mean"] >= table["mean"].max() / 2]
    page.wait_for_function(f"document.getElementById('count').textContent.startsWith('{len(strong)} of')")
    assert [each["label"] for each in marks(page, POINTS)] == [label(row) for _, row in strong.iterrows()]
    assert page.locator("#table tbody tr").count() == len(strong)
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
    page.wait_for_function(f"document.querySelectorAll('{POINTS}').length === {len(sure)}")


def test_another_measure_shows_its_own_numbers(page, result):
    page.locator("#measure").select_option("aeh")
    table = result.table("aeh")
    page.wait_for_function("document.getElementById('pair-summary').textContent.startsWith('AEH')")
    shown = page.locator("#table tbody tr").first
    assert float(shown.locator("td").nth(2).text_content()) == pytest.approx(table["mean"][0], rel=1e-3)
    np.testing.assert_allclose(sorted(each["mean"] for each in marks(page, POINTS)), sorted(table["mean"]), rtol=1e-4)


def test_the_table_sorts_by_each_column(page):
    def column(number):
        return page.locator(f"#table tbody td:nth-child({number})").all_text_contents()

    for number, kind in ((2, str), (3, float), (6, float), (7, str)):
        head = page.locator(f"#table th:nth-child({number}) button")
        head.click()
        first = [kind(value) for value in column(number)]
        head.click()
        second = [kind(value) for value in column(number)]
        assert first != second
        if kind is float:
            assert {tuple(first), tuple(second)} == {tuple(sorted(first)), tuple(sorted(first, reverse=True))}
        assert page.locator(f"#table th:nth-child({number})").get_attribute("aria-sort") in ("ascending", "descending")


def test_names_with_tags_are_shown_as_they_are_and_harm_nobody(page):
    assert page.title() == "Interactions in a network"
    assert page.locator("#table tbody button", has_text=EVIL).count() == 5
    assert EVIL in page.text_content(".summary") + "".join(page.locator("#heatmap text").all_text_contents()) + "".join(
        page.locator("#table button").all_text_contents()
    )
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


def test_pairs_whose_names_hold_the_separator_have_rows_of_their_own(opened, tmp_path):
    names = ["a", "b × c", "a × b", "c", "long " * 9 + "name", "another " + "long " * 9 + "name"]
    page = opened(random_result(6, groups=2, names=names).report(tmp_path / "page.html"))
    points = marks(page, POINTS)
    assert len({point["label"] for point in points}) == len({point["short"] for point in points}) == 15
    assert len({point["box"][1] for point in points}) == 15
    for texts in ("#heatmap .role-axis-label text", "#network .mark-text.role-mark text"):
        shown = page.locator(texts).all_text_contents()
        assert len(set(shown)) == 6
        assert {"a", "a × b"} < set(shown)


def test_a_page_of_tested_pairs_shows_supported_scores_beside_geh(opened, tmp_path, result):
    tested = evidence_result(result, untested=2)
    table = tested.table()
    page = opened(tested.report(tmp_path / "page.html"))
    assert page.locator("#measure").input_value() == "supported"
    assert page.text_content("#only-accepted").strip() == "significant only"
    # The heatmap has the supported score below the diagonal, and GEH above it.
    mean, supported = tested.geh.pair_mean, tested.decisions().supported
    for cell in marks(page, CELLS):
        i, j = NAMES.index(cell["row"]), NAMES.index(cell["column"])
        values = supported if i > j else mean
        assert cell["value"] == pytest.approx(values[tested.pair(i, j)], rel=1e-4, abs=1e-6)
    points = marks(page, POINTS)
    assert [point["label"] for point in points[: len(table)]] == [label(row) for _, row in table.iterrows()]
    diamonds = points[len(table) :]
    assert len(diamonds) == len(table) - 2
    x = np.array([point["box"][0] + point["box"][2] / 2 for point in points])
    scale, zero = np.polyfit([point["mean"] for point in points[: len(table)]], x[: len(table)], 1)
    supported = table["supported"][table["p_value"].notna()]
    np.testing.assert_allclose((x[len(table) :] - zero) / scale, supported, atol=1 / scale)
    unsure = {point["label"] for point in points if point["unsure"]}
    assert unsure == {label(row) for _, row in table[~table["significant"]].iterrows()}
    assert "significant, FDR 5 %" in page.text_content("#pair-summary")
    heads = page.locator("#table th").all_text_contents()
    assert heads[6:] == ["supported ↓", "slope", "slope se", "p", "significant"]
    page.locator("#table th:nth-child(10) button").click()
    shown = page.locator("#table tbody td:nth-child(10)").all_text_contents()
    assert shown[-2:] == ["", ""]  # pairs that were not tested are last
    decided = page.locator("#table tbody td:nth-child(11)").all_text_contents()
    assert decided[-2:] == ["", ""]
    assert set(decided[:-2]) == {"yes", "no"}
    page.locator("#measure").select_option("geh")
    page.wait_for_function("document.getElementById('heatmap-score').textContent === 'GEH of each pair'")
    strongest = marks(page, POINTS)[0]["label"]
    assert strongest == label(tested.table("geh").iloc[0])


def test_everything_can_be_reached_with_the_keyboard(page, result):
    table = result.table()
    page.locator("figure[tabindex]").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=label(table.iloc[1]))
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=label(table.iloc[0]))
    page.locator("#table tbody button").nth(4).focus()
    page.keyboard.press("Enter")
    page.wait_for_function("(name) => document.getElementById('pair').textContent === name", arg=label(table.iloc[4]))
    for tag in ("measure", "threshold", "accepted", "search", "download"):
        page.locator(f"#{tag}").focus()
        assert page.evaluate("document.activeElement.id") == tag
    unnamed = page.evaluate(
        "[...document.querySelectorAll('figure[tabindex]')].filter((f) => !f.getAttribute('aria-labelledby')).length"
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
    page.locator(f"#table tbody tr:has-text('{m}')").filter(has_text=k).first.click()
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
        "cell.__data__.datum.label === name && getComputedStyle(cell).fill === 'rgb(8, 48, 107)')",
        arg=[CELLS, strongest],
    )


def test_a_page_of_very_many_units_opens(opened, tmp_path):
    page = opened(random_result(150, draws=3).report(tmp_path / "page.html"))
    assert len(marks(page, CELLS)) == 60 * 59
    assert page.locator("#table tbody tr").count() == 200
    page.locator("#more").click()
    assert page.locator("#table tbody tr").count() == 1000
    assert "the 60 units with the strongest pairs, of 150" in page.text_content(".warnings")


def test_json_in_the_page_is_what_was_written(page):
    data = json.loads(page.text_content("#data"))
    assert data["names"] == NAMES


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
    assert "4 of 10 pairs were computed: those of unit 2." in page.text_content("body")


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
