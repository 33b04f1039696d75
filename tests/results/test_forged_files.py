"""Forged or damaged files and unusual names: read or refused with an error, and never executed."""

import html
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from explaining import explain_draws, random_points
from forged_file_checks import Verdicts, bomb, fuzz, outcome
from forged_files import GIGABYTE, intact, packed, read_npy, words_of
from forged_files import as_npy as saved_array
from forged_files import members as parts_of
from forged_files import with_words as saved_words
from networks import dropout_network

import geh_explain as geh
from geh_explain.plots.axes import wrap
from geh_explain.posterior import MCDropout
from geh_explain.run.record import RunRecord
from geh_explain.scores.pair_names import number_repeats
from geh_explain.units import PairSet

# Files


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return fuzz(tmp_path_factory.mktemp("fuzz"), 300)


def test_a_forged_file_is_read_or_refused_in_words(verdicts):
    assert not verdicts.wrong["load"]
    assert sum(verdicts.read.values()) > 20
    assert sum(verdicts.refused.values()) > 150


def test_what_is_read_of_a_forged_file_has_a_table(verdicts):
    assert not verdicts.wrong.get("read_table")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return intact(tmp_path_factory.mktemp("saved"))


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_they_fill_the_memory(saved, tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(bomb(saved["draws"], "labels", 5 * GIGABYTE // 4))
    found, memory = outcome(path)
    assert (found, memory < GIGABYTE) == ("refused", True)


def refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(geh.GEHError, match=path.name):
        geh.Interactions.load(path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("eah_points", value) for value in ("many", [1], {}, True, 1.5, 0, -1)),
        *(("warnings", value) for value in (3, None, [3])),
        *(("posterior", value) for value in (3, None, ["MCDropout()"], "\ud800")),
        *(("draws", "many"), ("draws_kept", 1), ("layer", 0), ("smoothed", [1]), ("jumping_units", [0.5])),
    ],
)
def test_settings_of_another_kind_than_saved_ones_are_refused(setting, value, saved, tmp_path):
    words = words_of(saved["draws"])
    words["settings"][setting] = value
    refused(saved_words(saved["draws"], json.dumps(words)), tmp_path / "settings.npz")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0, 1], [1, 3]),  # a unit that does not exist
        ([0, -1], [1, 2]),
        ([1, 1], [1, 2]),  # a unit with itself
        ([1, 0], [2, 1]),  # not in order
        ([0, 0], [1, 1]),  # twice the same
        ([0, 0, 1], [1, 2, 2]),  # all pairs
        ([0], [1]),  # fewer than its scores
        ([0.0, 1.0], [1.0, 2.0]),
        ([[0, 1]], [[1, 2]]),
        ([0, 1], [1]),
        ([], []),
    ],
)
def test_pairs_that_do_not_fit_are_refused(first, second, saved, tmp_path):
    parts = parts_of(saved["some pairs"])
    assert (read_npy(parts["pair_first.npy"]).tolist(), read_npy(parts["pair_second.npy"]).tolist()) == ([0, 1], [1, 2])
    kinds = [
        np.asarray(ends, dtype=np.float64 if ends and isinstance(ends[0], float) else np.int64)
        for ends in (first, second)
    ]
    forged = dict(zip(("pair_first.npy", "pair_second.npy"), map(saved_array, kinds), strict=True))
    refused(packed({**parts, **forged}), tmp_path / "pairs.npz")


def test_pairs_and_format_belong_together(saved, tmp_path):
    """A version that knows complete results only refuses files of some pairs by their format."""
    parts = parts_of(saved["some pairs"])
    words = words_of(saved["some pairs"])
    assert (words["format"], words_of(saved["draws"])["format"]) == tuple(
        f"geh_explain.Interactions/{k}" for k in (2, 1)
    )
    assert "pair_first.npy" not in parts_of(saved["draws"])
    refused(packed({name: part for name, part in parts.items() if not name.startswith("pair_")}), tmp_path / "a.npz")
    refused(packed({name: part for name, part in parts.items() if name != "pair_second.npy"}), tmp_path / "b.npz")
    words["format"] = "geh_explain.Interactions/1"
    refused(saved_words(saved["some pairs"], json.dumps(words)), tmp_path / "c.npz")
    path = tmp_path / "intact.npz"
    path.write_bytes(packed(parts))
    assert geh.Interactions.load(path).pairs == PairSet.touching([1], n_units=3)


def with_nested_setting(content: bytes, name: str, levels: int) -> bytes:
    """Return a file whose only setting is a list nested ``levels`` deep."""
    words = json.dumps(words_of(content))
    return saved_words(content, f'{words[:-1]}, "settings": {{"{name}": {"[" * levels + "]" * levels}}}}}')


@pytest.mark.parametrize(
    ("name", "levels"), [("target", 51), ("target", 800), ("smoothed", 800), ("unknown", 800), ("target", 100_000)]
)
def test_deeply_nested_settings_are_refused(name, levels, saved, tmp_path):
    refused(with_nested_setting(saved["draws"], name, levels), tmp_path / "deep.npz")


@pytest.mark.parametrize(("name", "levels"), [("target", 50), ("unknown", 50)], ids=["the deepest", "an unknown one"])
def test_a_file_with_nested_settings_that_is_read_can_be_shown_and_saved(name, levels, saved, tmp_path):
    path = tmp_path / "deep.npz"
    path.write_bytes(with_nested_setting(saved["draws"], name, levels))
    result = geh.Interactions.load(path)
    assert len(result.report(tmp_path / "page.html").read_text()) > 1000
    assert geh.Interactions.load(result.save(path)).settings == result.settings


def test_settings_that_an_earlier_version_did_not_write_have_their_defaults(saved, tmp_path):
    words = words_of(saved["draws"])
    words["settings"] = {"draws": 6, "place": "the inputs", "posterior": "MCDropout()", "written by": "version 0.1"}
    path = tmp_path / "early.npz"
    path.write_bytes(saved_words(saved["draws"], json.dumps(words)))
    result = geh.Interactions.load(path)
    assert result.record == RunRecord(draws=6, place="the inputs", posterior="MCDropout()")
    assert result.record.eah_points is None
    assert result.eah.n_draws == 6  # without a warning about points left out


@pytest.mark.parametrize("units", [0, 1])
def test_a_file_without_a_single_pair_is_refused(units, saved, tmp_path):
    words = words_of(saved["draws"])
    words["names"] = words["names"][:units]
    parts = parts_of(saved["draws"])
    del parts["slopes.npy"]
    parts |= {"signed.npy": saved_array(np.zeros((6, 2, 0))), "absolute.npy": saved_array(np.zeros((6, 0)))}
    refused(saved_words(packed(parts), json.dumps(words)), tmp_path / "pairs.npz")


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        ("draws", "signed", 1.7e308),
        ("draws", "absolute", 1.7e308),
        ("noise", "noise", np.inf),
        ("moments", "point_errors", -1.0),
        ("moments", "slopes_squares", -1.0),
    ],
)
def test_numbers_that_no_run_can_give_are_refused(kind, member, value, saved, tmp_path):
    parts = parts_of(saved[kind])
    array = np.full_like(read_npy(parts[f"{member}.npy"]), value)
    refused(packed(parts | {f"{member}.npy": saved_array(array)}), tmp_path / "numbers.npz")


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "", ".", "/dev/null", "\ud800"], ids=ascii)
def test_a_path_that_can_be_no_file_is_refused(path):
    with pytest.raises(geh.GEHError, match="path="):
        geh.Interactions.load(path)


# Names

ODD_NAMES = {
    "markup": ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "<!--", "]]>", "&lt;b&gt;"],
    "newlines": ["a\nb", "a\r\nb", "\n", "\t", "a\u2028b"],
    "quotes": ["'", '"', "`${alert(3)}`", "\\", "\\u003c/script>"],
    "long": ["x" * 5000, "y" * 5000, "y" * 4999, "z " * 2000, "w"],
    "unicode": ["größe", "\U0001f4d0\u200d\U0001f9ee", "\u202eleft to right", "e\u0301", "\u00e9"],
    "controls": ["\x00", "\x1b[31m", "\x07", "\x7f", ""],
    "marks of our own": ["@@DATA@@", "@@SCRIPT@@", "{name}", "%s", "$_$"],
    "like numbers": ["0", "1", "nan", "None", "-1"],
}
all_names = pytest.mark.parametrize("names", ODD_NAMES.values(), ids=ODD_NAMES)


def with_names(names: list[str]) -> geh.Interactions:
    """Explain a network of five inputs with these names."""
    x = random_points(24, 5, seed=1, dtype=torch.float)
    return explain_draws(dropout_network(5), x, posterior=MCDropout(), groups=2, names=names)


@all_names
def test_odd_names_are_those_of_the_table_and_of_a_saved_file(names, tmp_path):
    result = with_names(names)
    again = geh.Interactions.load(result.save(tmp_path / "odd.npz"))
    for each in (result, again):
        assert each.names == names
        table = each.table()
        assert set(table["unit_i"]) | set(table["unit_j"]) == set(names)
        assert each.regions(names[0], names[1]).equals(result.regions(0, 1))
    assert repr(again) == repr(result)


@all_names
def test_odd_names_are_escaped_wherever_a_browser_sees_them(names, tmp_path):
    result = with_names(names)
    plain = with_names(list("abcde")).report(tmp_path / "plain.html").read_text(encoding="utf-8")
    page = result.report(tmp_path / "page.html").read_bytes().decode()
    tags = re.compile(r"<\s*/?\s*(?:script|img|!--)", re.IGNORECASE)
    assert len(tags.findall(page)) == len(tags.findall(plain))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert set(json.loads(data[1])["names"]) == set(names)
    shown = result._repr_html_()
    assert not re.search(r"<(?!/?(?:p|table|thead|tbody|tr|th|td|div|style)\b)[a-z!/]", shown, re.IGNORECASE)
    strongest = result.top(1).iloc[0]
    assert html.escape(strongest["unit_i"]) in shown


@all_names
@pytest.mark.filterwarnings("ignore:.*[Gg]lyph", "ignore:.*constrained_layout", "ignore:.*[Tt]ight layout")
def test_odd_names_can_be_drawn(names, tmp_path):
    plot = with_names(names).plot
    heatmap, intervals, network, regions = plot.heatmap(), plot.intervals(), plot.network(), plot.regions(0, 1)
    for axes in (heatmap, intervals, network, regions):
        axes.figure.savefig(tmp_path / "picture.png", dpi=30)
    # Names of five units at both sides of the heatmap, ten pairs, five units on the circle, two groups.
    assert (len(heatmap.get_xticklabels()), len(heatmap.get_yticklabels())) == (5, 5)
    assert len(intervals.get_yticklabels()) == 10
    assert len(network.texts) == 5
    assert len(regions.get_yticklabels()) == 2
    assert [label.get_text() for label in heatmap.get_yticklabels()] == number_repeats([wrap(name) for name in names])
    plt.close("all")


def test_half_a_character_is_no_name():
    with pytest.raises(geh.GEHError, match=r"names"):
        with_names(["\ud800", "a", "b", "c", "d"])
