"""A file is loaded as exactly the result that was saved, or refused with an error."""

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
from hand_computed import explain_weighted

import geh_explain as geh


@pytest.fixture(scope="module")
def result() -> geh.Interactions:
    return explain_weighted()


@pytest.fixture
def saved(result: geh.Interactions, tmp_path: Path) -> Path:
    return result.save(tmp_path / "result.npz")


def assert_same(one: geh.Interactions, other: geh.Interactions) -> None:
    assert_same_scores(one, other)
    np.testing.assert_array_equal(one.point_errors, other.point_errors)


def assert_same_scores(one: geh.Interactions, other: geh.Interactions) -> None:
    for name in ("signed", "absolute", "labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert (one.names, one.group_names, one.settings) == (other.names, other.group_names, other.settings)


def test_what_is_loaded_is_what_was_saved(result: geh.Interactions, saved: Path) -> None:
    loaded = geh.Interactions.load(saved)
    assert_same(loaded, result)
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_array_equal(getattr(loaded, name).draws, getattr(result, name).draws)
        pd.testing.assert_frame_equal(loaded.table(name), result.table(name))
    pd.testing.assert_frame_equal(loaded.regions("age", "rooms"), result.regions("age", "rooms"))
    assert repr(loaded) == repr(result)
    assert_same(geh.Interactions.load(str(saved)), result)


def test_a_single_draw_and_odd_names_survive_saving(tmp_path: Path) -> None:
    names = ["größe \U0001f4d0", "a,b\n\"c'", "<b>"]
    one_draw = explain_weighted([(1.0, 4.0)], names=names)
    assert_same(geh.Interactions.load(one_draw.save(tmp_path / "one.npz")), one_draw)


def test_unknown_errors_of_points_survive_saving_and_files_without_any_are_read(
    result: geh.Interactions, saved: Path, tmp_path: Path
) -> None:
    with pytest.warns(geh.GEHWarning):
        unknown = explain_weighted(groups=["west", "west", "east", "north"])
    assert np.isnan(unknown.point_errors).any(axis=1).tolist() == [True, True, False]
    assert_same(geh.Interactions.load(unknown.save(tmp_path / "unknown.npz")), unknown)
    rewrite(saved, point_errors=None)
    earlier = geh.Interactions.load(saved)
    assert earlier.point_errors is None
    np.testing.assert_array_equal(earlier.signed, result.signed)
    assert geh.Interactions.load(earlier.save(saved)).point_errors is None


@pytest.mark.parametrize("name", ["", "folder", "folder.npz"])
def test_a_folder_is_not_written_to_a_file_beside_it(result: geh.Interactions, name: str, tmp_path: Path) -> None:
    (tmp_path / "a" / name).mkdir(parents=True)
    with pytest.raises(geh.GEHError, match="is a folder; give a file"):
        result.save(tmp_path / "a" / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_name_without_the_ending_gets_it(result: geh.Interactions, tmp_path: Path) -> None:
    path = result.save(tmp_path / "run.1")
    assert path == tmp_path / "run.1.npz"
    assert_same(geh.Interactions.load(path), result)


def test_a_file_holds_arrays_and_json_only(saved: Path) -> None:
    with np.load(saved, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)


def test_evidence_is_saved_with_the_result(result: geh.Interactions, tmp_path: Path) -> None:
    tested = with_evidence(result)
    loaded = geh.Interactions.load(tested.save(tmp_path / "tested.npz"))
    for name in ("slope", "slope_se", "p_value"):
        np.testing.assert_array_equal(getattr(loaded.evidence, name), getattr(tested.evidence, name))
    assert (loaded.evidence.n_rows, loaded.evidence.link) == (300, "logit")
    pd.testing.assert_frame_equal(loaded.table(), tested.table())
    assert geh.Interactions.load(result.save(tmp_path / "plain.npz")).evidence is None


def with_evidence(result: geh.Interactions) -> geh.Interactions:
    """Return the result with evidence: one pair was tested, one has no interaction, one was not tested."""
    slope, error = np.array([0.5, np.nan, np.nan]), np.array([0.1, np.nan, np.nan])
    return result.with_evidence(geh.Evidence(slope, error, np.array([1e-6, 1.0, np.nan]), 300, "logit"))


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


def test_a_changed_byte_is_refused_or_does_no_harm(result: geh.Interactions, saved: Path) -> None:
    content = saved.read_bytes()
    directory = content.index(b"PK\x01\x02")
    wrong = []
    for place in {*range(0, len(content), 7), *range(directory, len(content))}:
        saved.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            # An array that a file need not have is missing if its name was changed.
            assert_same_scores(geh.Interactions.load(saved), result)
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


def about(result: geh.Interactions, **changes: Any) -> bytes:
    """The words of a saved file with some of them changed."""
    words = {
        "format": "geh_explain.Interactions/1",
        "names": result.names,
        "group_names": result.group_names,
        "settings": result.settings,
    }
    return text(json.dumps(words | changes))


def text(words: str) -> bytes:
    return as_npy(np.frombuffer(words.encode(), dtype=np.uint8))


def test_a_file_put_together_by_hand_is_read(result: geh.Interactions, saved: Path) -> None:
    rewrite(saved, about=about(result), signed=as_npy(result.signed))
    assert_same(geh.Interactions.load(saved), result)


#: For each kind of damage the members of a file that are replaced, or None for those left out.
WRONG: dict[str, Callable[[geh.Interactions], dict[str, bytes | None]]] = {
    "a missing array": lambda result: {"absolute": None},
    "missing words": lambda result: {"about": None},
    "fewer draws": lambda result: {"absolute": as_npy(result.absolute[:2])},
    "no draws": lambda result: {"signed": as_npy(result.signed[:0]), "absolute": as_npy(result.absolute[:0])},
    "fewer groups": lambda result: {"signed": as_npy(result.signed[:, :1])},
    "fewer pairs": lambda result: {
        "signed": as_npy(result.signed[:, :, :2]),
        "absolute": as_npy(result.absolute[:, :2]),
    },
    "a flat array": lambda result: {"signed": as_npy(result.signed.ravel())},
    "a number": lambda result: {"signed": as_npy(1.0)},
    "single precision": lambda result: {"signed": as_npy(result.signed.astype(np.float32))},
    "complex numbers": lambda result: {"absolute": as_npy(result.absolute.astype(complex))},
    "words for numbers": lambda result: {"absolute": as_npy(result.absolute.astype(str))},
    "not a number": lambda result: {"signed": as_npy(result.signed * np.nan)},
    "infinite scores": lambda result: {"absolute": as_npy(result.absolute + np.inf)},
    "negative absolute values": lambda result: {"absolute": as_npy(-1 - result.absolute)},
    "errors of fewer groups": lambda result: {"point_errors": as_npy(result.point_errors[:1])},
    "errors of fewer pairs": lambda result: {"point_errors": as_npy(result.point_errors[:, :2])},
    "errors in single precision": lambda result: {"point_errors": as_npy(result.point_errors.astype(np.float32))},
    "negative errors": lambda result: {"point_errors": as_npy(-1 - result.point_errors)},
    "infinite errors": lambda result: {"point_errors": as_npy(result.point_errors + np.inf)},
    "words for errors": lambda result: {"point_errors": as_npy(result.point_errors.astype(str))},
    "unknown groups": lambda result: {"labels": as_npy(result.labels + 1)},
    "negative groups": lambda result: {"labels": as_npy(result.labels - 1)},
    "no labels": lambda result: {"labels": as_npy(result.labels[:0])},
    "labels in a square": lambda result: {"labels": as_npy(result.labels.reshape(2, 2))},
    "labels that are not whole": lambda result: {"labels": as_npy(result.labels.astype(float))},
    "bytes for an array": lambda result: {"signed": b"these are not the numbers you are looking for"},
    "bytes for words": lambda result: {"about": b"{}"},
    "half an array": lambda result: {"signed": as_npy(result.signed)[:-20]},
    "more numbers than there is memory": lambda result: {"signed": promise((10**15,))},
    "another format": lambda result: {"about": about(result, format="geh_explain.Interactions/0")},
    "a list for words": lambda result: {"about": text("[]")},
    "no JSON": lambda result: {"about": text("{'names': ")},
    "no text": lambda result: {"about": as_npy(np.array([255, 254, 253], dtype=np.uint8))},
    "JSON without a bottom": lambda result: {"about": text("[" * 100_000)},
    "too few names": lambda result: {"about": about(result, names=["a", "b"])},
    "one word for names": lambda result: {"about": about(result, names="abc")},
    "numbers for names": lambda result: {"about": about(result, names=[1, 2, 3])},
    "a name twice": lambda result: {"about": about(result, names=["a", "a", "b"])},
    "too many groups": lambda result: {"about": about(result, group_names=["a", "b", "c"])},
    "no names of groups": lambda result: {"about": about(result, group_names=None)},
    "no settings": lambda result: {"about": about(result, settings=None)},
}


#: For each kind of damaged errors over clusters the members of a file that are replaced, or None for those left out.
WRONG_CLUSTERS: dict[str, Callable[[geh.Interactions], dict[str, bytes | None]]] = {
    "a missing array": lambda result: {"cluster_counts": None},
    "no errors of points": lambda result: {"point_errors": None},
    "fewer pairs": lambda result: {"cluster_covariance": as_npy(result.cluster_errors.covariance[:, :, :2])},
    "fewer groups": lambda result: {"cluster_counts": as_npy(result.cluster_errors.counts[:1])},
    "negative variances": lambda result: {"cluster_covariance": as_npy(-1 - result.cluster_errors.covariance)},
    "no symmetry": lambda result: {
        "cluster_covariance": as_npy(result.cluster_errors.covariance + np.triu(np.ones((2, 2)), 1)[:, :, None])
    },
    "infinite covariances": lambda result: {"cluster_covariance": as_npy(result.cluster_errors.covariance + np.inf)},
    "no clusters": lambda result: {"cluster_total": as_npy(0.0)},
    "words for a number": lambda result: {"cluster_total": as_npy(np.array("many"))},
}


@pytest.fixture
def clustered() -> geh.Interactions:
    """A result of four points in two clusters."""
    with pytest.warns(geh.GEHWarning, match="2 clusters are few"):
        return explain_weighted(clusters=["a", "b", "a", "b"])


def test_errors_over_clusters_survive_saving(clustered: geh.Interactions, tmp_path: Path) -> None:
    loaded = geh.Interactions.load(clustered.save(tmp_path / "clustered.npz"))
    assert_same(loaded, clustered)
    np.testing.assert_array_equal(loaded.cluster_errors.covariance, clustered.cluster_errors.covariance)
    pd.testing.assert_frame_equal(loaded.table(), clustered.table())
    pd.testing.assert_frame_equal(loaded.variance(), clustered.variance())
    assert repr(loaded) == repr(clustered)


@pytest.mark.parametrize("wrong", WRONG_CLUSTERS)
def test_damaged_errors_over_clusters_are_refused(clustered: geh.Interactions, wrong: str, tmp_path: Path) -> None:
    path = clustered.save(tmp_path / "clustered.npz")
    rewrite(path, **WRONG_CLUSTERS[wrong](clustered))
    assert_refused(path)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_whose_parts_do_not_belong_together_is_refused(
    result: geh.Interactions, wrong: str, saved: Path
) -> None:
    rewrite(saved, **WRONG[wrong](result))
    assert_refused(saved)


#: For each kind of damaged evidence the members of a file that are replaced, or None for those left out.
WRONG_EVIDENCE: dict[str, Callable[[geh.Interactions], dict[str, bytes | None]]] = {
    "a missing array": lambda result: {"evidence_slope": None},
    "arrays without words": lambda result: {"about": about(result)},
    "words without arrays": lambda result: dict.fromkeys(
        ["evidence_slope", "evidence_slope_se", "evidence_p_value"], None
    ),
    "fewer pairs": lambda result: {"evidence_slope": as_npy(np.array([0.5, np.nan]))},
    "single precision": lambda result: {"evidence_p_value": as_npy(np.array([0, 1, np.nan], dtype=np.float32))},
    "a p-value above 1": lambda result: {"evidence_p_value": as_npy(np.array([1.5, 1, np.nan]))},
    "a negative p-value": lambda result: {"evidence_p_value": as_npy(np.array([-0.5, 1, np.nan]))},
    "a negative error": lambda result: {"evidence_slope_se": as_npy(np.array([-0.1, np.nan, np.nan]))},
    "a slope without error": lambda result: {"evidence_slope": as_npy(np.array([0.5, 0.5, np.nan]))},
    "an infinite slope": lambda result: {"evidence_slope": as_npy(np.array([np.inf, np.nan, np.nan]))},
    "a slope without test": lambda result: {"evidence_p_value": as_npy(np.array([np.nan, 1, np.nan]))},
    "a p-value without slope": lambda result: {"evidence_p_value": as_npy(np.array([1e-6, 0.3, np.nan]))},
    "no rows": lambda result: {"about": about(result, evidence={"n_rows": 0, "link": "logit"})},
    "rows that are not whole": lambda result: {"about": about(result, evidence={"n_rows": 3.5, "link": "logit"})},
    "rows that are true": lambda result: {"about": about(result, evidence={"n_rows": True, "link": "logit"})},
    "an unknown link": lambda result: {"about": about(result, evidence={"n_rows": 300, "link": ["probit"]})},
    "a missing link": lambda result: {"about": about(result, evidence={"n_rows": 300})},
    "a list for words": lambda result: {"about": about(result, evidence=[300, "logit"])},
}


@pytest.mark.parametrize("wrong", WRONG_EVIDENCE)
def test_damaged_evidence_is_refused(result: geh.Interactions, wrong: str, tmp_path: Path) -> None:
    path = with_evidence(result).save(tmp_path / "result.npz")
    rewrite(path, **WRONG_EVIDENCE[wrong](result))
    assert_refused(path)


def test_a_single_array_is_refused(result: geh.Interactions, saved: Path) -> None:
    saved.write_bytes(as_npy(result.signed))
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
