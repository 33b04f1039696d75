"""The table of promises in docs/trust.md is that of the recorded results, and its commands exist."""

import json
import re

import pytest

from tools import promises


@pytest.fixture(scope="module")
def records():
    return json.loads(promises.RECORDS.read_text(encoding="utf-8"))


def test_the_table_is_that_of_the_recorded_results(records):
    """After a study: ``python -m tools.promises --page-only``."""
    page = promises.PAGE.read_text(encoding="utf-8")
    assert promises.with_table(page, promises.build_table(records)) == page


def test_every_promise_was_checked_and_held(records):
    assert list(records["tests"]) == list(promises.TESTED)
    assert list(records["studies"]) == list(promises.STUDIED)
    for outcome in records["tests"].values():
        assert outcome["passed"] > 10
        assert outcome["failed"] == outcome["skipped"] == 0


@pytest.mark.parametrize("name", promises.TESTED)
def test_the_tests_of_a_promise_exist(name):
    promise = promises.TESTED[name]
    for pattern in promise.paths:
        assert list(promises.ROOT.glob(pattern)), f"no file {pattern}"


def test_studies_and_targets_that_are_named_exist():
    targets = re.findall(r"^([a-z-]+):", (promises.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for each in (*promises.TESTED.values(), *promises.STUDIED.values()):
        command = each.command if isinstance(each, promises.StudiedPromise) else each.long
        named = re.fullmatch(r"make ([a-z-]+)|python -m studies (\w+) --docs docs", command)
        assert not command or named, command
        if named and named[1]:
            assert named[1] in targets
        elif named:
            assert (promises.ROOT / "studies" / named[2]).is_dir()


def test_a_table_replaces_the_one_between_the_marks():
    page = "# Page\n\n" + promises.with_table("", "| old |\n") + "tail\n"
    assert promises.with_table(page, "| new |\n") == page.replace("old", "new")
