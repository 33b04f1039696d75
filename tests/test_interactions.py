"""The result: what its tables say, and that a file gives back exactly what was saved, or an error in words."""

import gc
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import geh_explain as geh

COLUMNS = ["unit_i", "unit_j", "mean", "std", "low", "high", "p_value", "significant"]


class Weighted(nn.Module):
    """w0 x0^2 x1 + w1 x1 x2: local interactions 2 w0 x0 of (x0, x1), w1 of (x1, x2) and none of (x0, x2)."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        return self.w[0] * x[:, 0] ** 2 * x[:, 1] + self.w[1] * x[:, 1] * x[:, 2]


#: 2 x0 is 1 and -3 in the west, with mean -1, and 2 and 4 in the east, with mean 3.
POINTS = pd.DataFrame({"rooms": [0.5, -1.5, 1.0, 2.0], "age": [0.0, 1.0, 2.0, 3.0], "price": [5.0, 6.0, 7.0, 9.0]})
SIDES = ["west", "west", "east", "east"]
WEIGHTS = [(2.0, 2.0), (2.5, 3.0), (3.0, 4.0)]


def explain(weights: list[tuple[float, float]] = WEIGHTS, **options: Any) -> geh.Interactions:
    samples = geh.posterior.WeightSamples([{"w": torch.tensor(w, dtype=torch.double)} for w in weights])
    explainer = geh.GEHExplainer(Weighted(), posterior=samples)
    return explainer.explain(POINTS, **({"groups": SIDES, "progress": False} | options))


RESULT = explain()


# Tables.


def test_the_table_lists_every_pair_strongest_first() -> None:
    table = RESULT.table()
    assert table.columns.tolist() == COLUMNS
    assert table.index.tolist() == [0, 1, 2]
    assert table["unit_i"].tolist() == ["rooms", "age", "rooms"]
    assert table["unit_j"].tolist() == ["age", "price", "price"]
    # (rooms, age): (2 |-1| + 2 |3|) / 4 = 2 times w0, that is 4, 5, 6; (age, price): w1, that is 2, 3, 4.
    np.testing.assert_allclose(table["mean"], [5.0, 3.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["std"], [1.0, 1.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["low"], [3.0, 1.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["high"], [7.0, 5.0, 0.0], rtol=0, atol=1e-12)
    # Tails beyond 5 and 3 standard deviations, from any table of the Gaussian.
    np.testing.assert_allclose(table["p_value"], [2.8665e-7, 1.3499e-3, 1.0], rtol=1e-4)
    assert table["significant"].tolist() == [True, True, False]


def test_each_measure_has_its_own_table() -> None:
    # (rooms, age) is 2.5 on average times |1 - 3 + 2 + 4| / 4 = 1 if signs cancel, (1 + 3 + 2 + 4) / 4 = 2.5 if not.
    weakened = RESULT.table("aeh")
    assert weakened["unit_i"].tolist() == ["age", "rooms", "rooms"]
    np.testing.assert_allclose(weakened["mean"], [3.0, 2.5, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(RESULT.table("eah")["mean"], [6.25, 3.0, 0.0], rtol=0, atol=1e-12)
    with pytest.raises(geh.GEHError, match="measure"):
        RESULT.table("shap")


def test_the_level_of_the_table_sets_its_intervals() -> None:
    table = RESULT.table(level=0.5)
    np.testing.assert_allclose(table["high"] - table["mean"], 0.6744898 * table["std"], rtol=1e-6)
    np.testing.assert_allclose(table["mean"] - table["low"], 0.6744898 * table["std"], rtol=1e-6)


def test_the_table_tells_the_same_as_the_matrices() -> None:
    low, high = RESULT.geh.interval()
    for _, row in RESULT.table().iterrows():
        i, j = RESULT.names.index(row["unit_i"]), RESULT.names.index(row["unit_j"])
        assert (row["mean"], row["std"]) == (RESULT.geh.mean[i, j], RESULT.geh.std[j, i])
        assert (row["low"], row["high"]) == (low[j, i], high[i, j])


def test_the_top_is_the_head_of_the_table() -> None:
    pd.testing.assert_frame_equal(RESULT.top(2), RESULT.table().head(2))
    pd.testing.assert_frame_equal(RESULT.top(), RESULT.table())
    pd.testing.assert_frame_equal(RESULT.top(1, measure="aeh"), RESULT.table("aeh").head(1))


def test_one_draw_has_scores_and_no_uncertainty() -> None:
    result = explain([(1.0, 4.0)])
    table = result.table()
    assert table.columns.tolist() == COLUMNS
    np.testing.assert_allclose(table["mean"], [4.0, 2.0, 0.0], rtol=0, atol=1e-12)
    assert table[["std", "low", "high", "p_value", "significant"]].isna().all(axis=None)
    assert np.isnan(result.geh.std[0, 1])
    assert result.regions(0, 1)[["std", "low", "high"]].isna().all(axis=None)
    assert result.regions(0, 1)["mean"].tolist() == [3.0, -1.0]
    for kind in ("gaussian", "quantile"):
        with pytest.raises(geh.GEHError, match="draws"):
            result.geh.interval(kind=kind)
    assert "no intervals" in repr(result)


# Regions.


def test_regions_give_the_signed_mean_of_each_group() -> None:
    regions = RESULT.regions("rooms", "age")
    assert regions.columns.tolist() == ["size", "mean", "std", "low", "high"]
    assert regions.index.tolist() == ["east", "west"]
    assert regions["size"].tolist() == [2, 2]
    # 3 in the east and -1 in the west, times w0 = 2, 2.5, 3.
    np.testing.assert_allclose(regions["mean"], [7.5, -2.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(regions["std"], [1.5, 0.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(regions["low"], [4.5, -3.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(regions["high"], [10.5, -1.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(RESULT.regions("age", "price")["mean"], [3.0, 3.0], rtol=0, atol=1e-12)


def test_regions_know_units_by_name_and_by_number_in_any_order() -> None:
    expected = RESULT.regions("rooms", "age")
    for i, j in (("age", "rooms"), (0, 1), (1, 0), ("rooms", 1), (np.int64(0), -2)):
        pd.testing.assert_frame_equal(RESULT.regions(i, j), expected)


def test_regions_add_up_to_the_scores() -> None:
    for pair, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        signed = RESULT.signed[:, :, pair]
        np.testing.assert_allclose(signed.mean(axis=0), RESULT.regions(i, j)["mean"], rtol=0, atol=1e-12)
        share = RESULT.regions(i, j)["size"].to_numpy() / 4
        np.testing.assert_allclose(RESULT.geh.mean[i, j], (np.abs(signed) @ share).mean(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(RESULT.aeh.mean[i, j], np.abs(signed @ share).mean(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("i", "j"), [(0, 0), ("age", 1), ("room", "age"), (0, 3), (-4, 0), (0.5, 1), (True, 2)])
def test_units_that_are_not_there_are_refused(i: Any, j: Any) -> None:
    with pytest.raises(geh.GEHError):
        RESULT.regions(i, j)


def test_labels_say_which_group_each_point_is_in() -> None:
    assert [RESULT.group_names[label] for label in RESULT.labels] == SIDES
    assert RESULT.names == ["rooms", "age", "price"]


# Settings.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 1, "scale": "std", "batch_size": 3, "seed": 7},
        {"groups": np.array([0, 1, 0, 1]), "scale": np.array([1.0, 2.0, 3.0])},
        {"groups": torch.tensor([0, 0, 1, 1]), "scale": torch.ones(3), "target": 0},
        {"groups": np.int64(2), "batch_size": np.int64(3), "seed": np.int64(1), "draws": np.int64(2)},
        {"groups": "auto", "draws": 2},
    ],
    ids=["labels", "words", "arrays", "tensors", "numpy numbers", "auto"],
)
def test_settings_can_be_written_as_json_and_saved(options: dict[str, Any], tmp_path: Path) -> None:
    result = explain(**options)
    assert json.loads(json.dumps(result.settings)) == result.settings
    assert geh.Interactions.load(result.save(tmp_path / "result.npz")).settings == result.settings


def test_settings_say_how_the_result_came_about() -> None:
    settings = explain(groups=2, batch_size=3, seed=5, scale="std").settings
    expected = {"points": 4, "groups": 2, "group_count": 2, "draws": 3, "batch_size": 3, "seed": 5, "scale": "std"}
    expected |= {"posterior": "WeightSamples(3)", "model": "Weighted", "dtype": "float64", "engine": "exact"}
    assert {key: settings[key] for key in expected} == expected


# Files.


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return RESULT.save(tmp_path / "result.npz")


def assert_same(one: geh.Interactions, other: geh.Interactions) -> None:
    for name in ("signed", "absolute", "labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert (one.names, one.group_names, one.settings) == (other.names, other.group_names, other.settings)


def test_what_is_loaded_is_what_was_saved(saved: Path) -> None:
    loaded = geh.Interactions.load(saved)
    assert_same(loaded, RESULT)
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_array_equal(getattr(loaded, name).draws, getattr(RESULT, name).draws)
        pd.testing.assert_frame_equal(loaded.table(name), RESULT.table(name))
    pd.testing.assert_frame_equal(loaded.regions("age", "rooms"), RESULT.regions("age", "rooms"))
    assert repr(loaded) == repr(RESULT)
    assert_same(geh.Interactions.load(str(saved)), RESULT)


def test_a_single_draw_and_odd_names_survive_saving(tmp_path: Path) -> None:
    names = ["größe \U0001f4d0", "a,b\n\"c'", "<b>"]
    result = explain([(1.0, 4.0)], names=names)
    assert_same(geh.Interactions.load(result.save(tmp_path / "one.npz")), result)


def test_a_name_without_the_ending_gets_it(tmp_path: Path) -> None:
    path = RESULT.save(tmp_path / "run.1")
    assert path == tmp_path / "run.1.npz"
    assert_same(geh.Interactions.load(path), RESULT)


def test_a_file_holds_arrays_and_json_only(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)


def assert_refused(path: Path) -> None:
    with pytest.raises(geh.GEHError, match=path.name) as caught:
        geh.Interactions.load(path)
    assert isinstance(caught.value, ValueError)
    del caught
    gc.collect(1)  # a file left open is reported here, as a ResourceWarning


def test_a_truncated_file_is_refused_at_every_length(saved: Path) -> None:
    content = saved.read_bytes()
    for length in {*range(0, len(content), 41), 1, 4, 21, 22, len(content) - 22, len(content) - 1}:
        saved.write_bytes(content[:length])
        assert_refused(saved)


def test_a_changed_byte_is_refused_or_does_no_harm(saved: Path) -> None:
    content = saved.read_bytes()
    directory = content.index(b"PK\x01\x02")
    wrong = []
    for place in {*range(0, len(content), 7), *range(directory, len(content))}:
        saved.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            assert_same(geh.Interactions.load(saved), RESULT)
        except geh.GEHError:
            continue
        except Exception as error:
            wrong.append((place, repr(error)))
    gc.collect(1)
    assert not wrong


@pytest.mark.parametrize("content", [b"", b"\x00" * 500, bytes(range(256)) * 4, b"PK\x03\x04" + b"\x07" * 200, b"{}"])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    assert_refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "missing.npz")
    assert_refused(tmp_path)


def as_npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def promise(shape: tuple[int, ...]) -> bytes:
    """The header of an array of this shape, without the array."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def rewrite(path: Path, **members: bytes | None) -> None:
    """Replace members of a saved file by other bytes, or leave them out."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept |= {f"{name}.npy": content for name, content in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            if content is not None:
                archive.writestr(name, content)


def about(**changes: Any) -> bytes:
    """The words of a saved file with some of them changed."""
    words = {
        "format": "geh_explain.Interactions/1",
        "names": RESULT.names,
        "group_names": RESULT.group_names,
        "settings": RESULT.settings,
    }
    return text(json.dumps(words | changes))


def text(words: str) -> bytes:
    return as_npy(np.frombuffer(words.encode(), dtype=np.uint8))


def test_a_file_put_together_by_hand_is_read(saved: Path) -> None:
    rewrite(saved, about=about(), signed=as_npy(RESULT.signed))
    assert_same(geh.Interactions.load(saved), RESULT)


WRONG: dict[str, dict[str, bytes | None]] = {
    "a missing array": {"absolute": None},
    "missing words": {"about": None},
    "fewer draws": {"absolute": as_npy(RESULT.absolute[:2])},
    "no draws": {"signed": as_npy(RESULT.signed[:0]), "absolute": as_npy(RESULT.absolute[:0])},
    "fewer groups": {"signed": as_npy(RESULT.signed[:, :1])},
    "fewer pairs": {"signed": as_npy(RESULT.signed[:, :, :2]), "absolute": as_npy(RESULT.absolute[:, :2])},
    "a flat array": {"signed": as_npy(RESULT.signed.ravel())},
    "a number": {"signed": as_npy(1.0)},
    "single precision": {"signed": as_npy(RESULT.signed.astype(np.float32))},
    "complex numbers": {"absolute": as_npy(RESULT.absolute.astype(complex))},
    "words for numbers": {"absolute": as_npy(RESULT.absolute.astype(str))},
    "not a number": {"signed": as_npy(RESULT.signed * np.nan)},
    "infinite scores": {"absolute": as_npy(RESULT.absolute + np.inf)},
    "negative absolute values": {"absolute": as_npy(-1 - RESULT.absolute)},
    "unknown groups": {"labels": as_npy(RESULT.labels + 1)},
    "negative groups": {"labels": as_npy(RESULT.labels - 1)},
    "no labels": {"labels": as_npy(RESULT.labels[:0])},
    "labels in a square": {"labels": as_npy(RESULT.labels.reshape(2, 2))},
    "labels that are not whole": {"labels": as_npy(RESULT.labels.astype(float))},
    "bytes for an array": {"signed": b"these are not the numbers you are looking for"},
    "bytes for words": {"about": b"{}"},
    "half an array": {"signed": as_npy(RESULT.signed)[:-20]},
    "more numbers than there is memory": {"signed": promise((10**15,))},
    "another format": {"about": about(format="geh_explain.Interactions/0")},
    "a list for words": {"about": text("[]")},
    "no JSON": {"about": text("{'names': ")},
    "no text": {"about": as_npy(np.array([255, 254, 253], dtype=np.uint8))},
    "JSON without a bottom": {"about": text("[" * 100_000)},
    "too few names": {"about": about(names=["a", "b"])},
    "one word for names": {"about": about(names="abc")},
    "numbers for names": {"about": about(names=[1, 2, 3])},
    "a name twice": {"about": about(names=["a", "a", "b"])},
    "too many groups": {"about": about(group_names=["a", "b", "c"])},
    "no names of groups": {"about": about(group_names=None)},
    "no settings": {"about": about(settings=None)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_whose_parts_do_not_belong_together_is_refused(wrong: str, saved: Path) -> None:
    rewrite(saved, **WRONG[wrong])
    assert_refused(saved)


def test_a_single_array_is_refused(saved: Path) -> None:
    saved.write_bytes(as_npy(RESULT.signed))
    assert_refused(saved)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("member", ["signed", "absolute", "labels", "about"])
def test_a_pickle_inside_is_refused_and_never_executed(member: str, saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    rewrite(saved, **{member: as_npy(np.array([Bomb(trace)], dtype=object))})
    assert_refused(saved)
    assert not trace.exists()


def test_a_pickle_is_refused_and_never_executed(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    saved.write_bytes(pickle.dumps(Bomb(trace)))
    assert_refused(saved)
    assert not trace.exists()
    pickle.loads(saved.read_bytes())
    assert trace.exists()  # it would have gone off


# Words.


def test_the_summary_counts_what_there_is() -> None:
    words = repr(RESULT)
    assert "3 units of the inputs: 3 pairs, 4 points in 2 groups, 3 draws of WeightSamples(3)" in words
    assert "2 significant at 95 %" in words
    assert [line.split()[1:4] for line in words.splitlines()[2:]] == [
        ["rooms", "age", "5"],
        ["age", "price", "3"],
        ["rooms", "price", "0"],
    ]


def test_names_cannot_smuggle_markup_into_a_notebook() -> None:
    result = explain(names=["<script>alert(1)</script>", "<b>", "c & d"])
    page = result._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "c &amp; d" in page
    assert "<script>alert(1)</script>" in repr(result)


def test_a_posterior_cannot_smuggle_markup_into_a_notebook() -> None:
    explainer = geh.GEHExplainer(Weighted(), posterior=geh.posterior.WeightSamples(lambda k: {"w": torch.rand(2)}))
    page = explainer.explain(POINTS, groups=SIDES, draws=2, progress=False)._repr_html_()
    assert "<function" not in page
    assert "&lt;function" in page
