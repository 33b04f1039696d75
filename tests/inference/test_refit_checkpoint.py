"""Numbered tasks: only missing ones are run, failures are reported, and the folder of another test is refused."""

import pytest

import geh_explain as geh
from geh_explain.inference.checkpoint import Checkpoint


def square(number):
    if number == 3:
        raise ArithmeticError("no square")
    return {"number": number, "square": number**2}


def run(store, numbers):
    return store.run(square, numbers, workers=1, progress=False, label="squares")


def test_only_tasks_without_a_record_are_run(tmp_path):
    store = Checkpoint(tmp_path, "squares", {"power": "2"})
    store.add({"number": 2, "square": "as it was"})
    assert run(store, [1, 2, 4]) == {}
    assert [store.records[number]["square"] for number in (1, 2, 4)] == [1, "as it was", 16]
    assert Checkpoint(tmp_path, "squares", {"power": "2"}).records == store.records


def test_failures_are_reported_and_run_again_by_the_next_call(tmp_path):
    store = Checkpoint(tmp_path, "squares", {})
    assert run(store, [1, 3]) == {3: "ArithmeticError: no square"}
    assert list(Checkpoint(tmp_path, "squares", {}).records) == [1]


def test_without_a_folder_records_are_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Checkpoint(None, "squares", {})
    assert run(store, [1, 2]) == {}
    assert sorted(store.records) == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_another_test_is_refused(tmp_path):
    Checkpoint(tmp_path, "squares", {"power": "2", "seed": "0"})
    with pytest.raises(geh.GEHError, match=r"belongs to another test: power \(2 there, 3 here\); give another folder"):
        Checkpoint(tmp_path, "squares", {"power": "3", "seed": "0"})
