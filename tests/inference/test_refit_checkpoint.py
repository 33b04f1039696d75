"""Numbered tasks: only missing ones are run, failures are reported, and the folder of another test is refused."""

import os

import pytest

import geh_explain as geh
from geh_explain.inference.checkpoint import Checkpoint


def square(number):
    if number == 3:
        raise ArithmeticError("no square")
    return {"number": number, "square": number**2}


def run(store, numbers):
    return store.run(square, numbers, workers=1, progress=False, label="squares")


def opened(folder, fingerprint=None):
    return Checkpoint(folder, "squares", fingerprint or {})


def test_only_tasks_without_a_record_are_run(tmp_path):
    with opened(tmp_path, {"power": "2"}) as store:
        store.add({"number": 2, "square": "as it was"})
        assert run(store, [1, 2, 4]) == {}
    assert [store.records[number]["square"] for number in (1, 2, 4)] == [1, "as it was", 16]
    with opened(tmp_path, {"power": "2"}) as again:
        assert again.records == store.records


def test_failures_are_reported_and_run_again_by_the_next_call(tmp_path):
    with opened(tmp_path) as store:
        assert run(store, [1, 3]) == {3: "ArithmeticError: no square"}
    with opened(tmp_path) as again:
        assert list(again.records) == [1]


def test_without_a_folder_records_are_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(None) as store:
        assert run(store, [1, 2]) == {}
    assert sorted(store.records) == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_another_test_is_refused(tmp_path):
    with opened(tmp_path, {"power": "2", "seed": "0"}):
        pass
    words = r"belongs to another test: power \(2 there, 3 here\); give another folder"
    with pytest.raises(geh.GEHError, match=words), opened(tmp_path, {"power": "3", "seed": "0"}):
        pass
    with opened(tmp_path, {"power": "2", "seed": "0"}):  # the lock was released
        pass
    with pytest.raises(geh.GEHError, match="checkpoint=7 is no path"):
        opened(7)


def test_a_folder_in_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("geh_explain.storage.lock.WAIT_SECONDS", 0)
    words = rf"is in use by process {os.getpid()} on '.*' since \d{{4}}-.*; wait until it has finished"
    with opened(tmp_path), pytest.raises(geh.GEHError, match=words), opened(tmp_path):
        pass


# Forged and damaged records.


def without_stamp(lines):
    """Return the lines with the record of task 2 as it was without its stamp."""
    return [line if b'"number": 2' not in line else line[: line.index(b', "stamp"')] + b"}" for line in lines]


def exchanged(old, new):
    """Return a forgery that replaces text in the record of task 2, with the stamp as it was."""
    return lambda lines: [line.replace(old, new) if b'"number": 2' in line else line for line in lines]


FORGERIES = {
    "another value": exchanged(b'"square": 4', b'"square": 5'),
    "not a number": exchanged(b'"square": 4', b'"square": NaN'),
    "another type": exchanged(b'"square": 4', b'"square": "4"'),
    "a number that is text": exchanged(b'"number": 2', b'"number": "2"'),
    "a number that is true": exchanged(b'"number": 2', b'"number": true'),
    "a number that is a list": exchanged(b'"number": 2', b'"number": [2]'),
    "another entry": exchanged(b'"square": 4', b'"square": 4, "cube": 8'),
    "no entry": exchanged(b', "square": 4', b""),
    "another stamp": exchanged(b'"stamp": "', b'"stamp": "0'),
    "no stamp": without_stamp,
    "a line that is no record": exchanged(b"{", b"[{"),
    "half a line": lambda lines: [line[: len(line) // 2] if b'"number": 2' in line else line for line in lines],
    "bytes that are no text": lambda lines: [b"\xff\xfe" if b'"number": 2' in line else line for line in lines],
    "a list": lambda lines: [b"[1, 2]" if b'"number": 2' in line else line for line in lines],
    "very deep lists": lambda lines: [b"[" * 10**5 if b'"number": 2' in line else line for line in lines],
    "a very long number": lambda lines: [b"9" * 10**4 if b'"number": 2' in line else line for line in lines],
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_record_is_computed_again_with_a_warning(forgery, tmp_path):
    with opened(tmp_path) as store:
        run(store, [1, 2])
    path = tmp_path / "squares.jsonl"
    lines = path.read_bytes().splitlines()
    forged = FORGERIES[forgery](lines)
    assert forged != lines
    path.write_bytes(b"\n".join(forged) + b"\n")
    again = opened(tmp_path)
    with pytest.warns(geh.GEHWarning, match="damaged"):
        again.__enter__()
    try:
        assert list(again.records) == [1]
        run(again, [1, 2])
    finally:
        again.__exit__()
    assert again.records == store.records


def test_records_are_not_taken_over_by_another_test_where_the_fingerprint_is_lost(tmp_path):
    with opened(tmp_path, {"power": "2"}) as store:
        run(store, [1, 2])
    path = tmp_path / "squares.jsonl"
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[1:]) + b"\n")
    with (
        pytest.warns(geh.GEHWarning, match=r"2 record\(s\) of squares.jsonl"),
        opened(tmp_path, {"power": "3"}) as other,
    ):
        assert other.records == {}


def test_impossible_records_are_refused_by_the_check(tmp_path):
    with opened(tmp_path) as store:
        run(store, [1, 2])

    def check(record):
        if record["square"] > 3:
            raise ValueError

    with (
        pytest.warns(geh.GEHWarning, match=r"1 record\(s\)"),
        Checkpoint(tmp_path, "squares", {}, check) as again,
    ):
        assert list(again.records) == [1]
