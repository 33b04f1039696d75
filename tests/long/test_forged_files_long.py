"""Ten thousand forged files: each loads as a working result or raises an error, and nothing in them is executed."""

import io
import zipfile

import pytest
from forged_file_checks import INFLATING, Verdicts, bomb, fuzz, inflating, outcome, with_a_member_that_inflates
from forged_files import ATTACKS, FILES, GIGABYTE, intact, members, promise, read_npy

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return fuzz(tmp_path_factory.mktemp("fuzz"), FILES)


def test_a_forged_file_is_read_or_refused_in_words(verdicts: Verdicts) -> None:
    assert not verdicts.wrong["load"]
    assert sum(verdicts.read.values()) + sum(verdicts.refused.values()) == FILES


def test_attacks_get_as_far_as_the_checks(verdicts: Verdicts) -> None:
    assert set(verdicts.refused) | set(verdicts.read) == {attack.__name__ for attack in ATTACKS}
    harmless = {"with_its_members_in_another_order", "with_more_members"}
    assert harmless <= set(verdicts.read)
    assert set(verdicts.refused) >= {attack.__name__ for attack in ATTACKS} - harmless


def test_what_is_read_has_a_table(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("read_table")


def test_everything_works_of_what_is_read(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("use_everything")


def test_what_is_read_has_a_page(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("write_page")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return intact(tmp_path_factory.mktemp("intact"))["draws"]


@pytest.mark.parametrize("kind", INFLATING)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_they_fill_the_memory(kind, content, tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(bomb(content, kind, 3 * GIGABYTE))
    assert path.stat().st_size < 2**24
    found, memory = outcome(path)
    assert (found, memory < GIGABYTE) == ("refused", True)


def test_the_forged_archive_is_one_that_zip_can_read(content, tmp_path):
    stream = inflating(promise((2**23,), "<i8"), 2**26)
    forged = with_a_member_that_inflates(content, "labels.npy", *stream)
    with zipfile.ZipFile(io.BytesIO(forged)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == set(members(content))
    assert len(read_npy(members(forged)["labels.npy"])) == 2**23
