"""A file gives back exactly the result that was saved, or an error in words."""

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
from weighted import RESULT, explain

import geh_explain as geh


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
