"""Streams that have no end, change, or contradict themselves are refused in words."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from explaining import explain_point, random_points
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import geh_explain as geh
from geh_explain.data.loaders import declared_length, is_ordered
from geh_explain.data.streams import Length


class Rows(IterableDataset):
    """Rows by a function of the number of the pass."""

    def __init__(self, rows: Callable[[int], Any]) -> None:
        self.rows, self.passes = rows, 0

    def __iter__(self) -> Iterator[Tensor]:
        self.passes += 1
        return iter(self.rows(self.passes))


class Counted(Rows):
    """The same with a length."""

    def __init__(self, rows: Callable[[int], Any], length: int) -> None:
        super().__init__(rows)
        self.length = length

    def __len__(self) -> int:
        return self.length


def endless(number: int) -> Iterator[Tensor]:
    return itertools.cycle(random_points(10, 3))


def model(x: Tensor) -> Tensor:
    return x.prod(1)


def refused(loader: DataLoader[Any], words: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, of a length that is too small
        with pytest.raises(geh.GEHError, match=words):
            explain_point(model, loader, groups=1)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_stream_without_length_is_read_up_to_a_limit(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    monkeypatch.setattr("geh_explain.data.streams.MAX_UNCOUNTED_ROWS", 100)
    refused(DataLoader(Rows(endless), batch_size=8), r"more than 100 rows.*does not say how many.*islice.*__len__")
    # As many rows as the limit are allowed.
    exactly = DataLoader(Rows(lambda number: random_points(100, 3)), batch_size=8)
    assert len(explain_point(model, exactly, groups=1).labels) == 100


def test_a_stream_that_gives_more_than_its_length_is_refused() -> None:
    by_rows = DataLoader(Counted(endless, 20), batch_size=5)
    refused(by_rows, "more than the 20 rows that its length says")
    of_batches = Counted(lambda number: (x for x in itertools.repeat(random_points(5, 3))), 4)
    refused(DataLoader(of_batches, batch_size=None), "more than the 4 batches that its length says")


def test_workers_that_do_not_share_the_rows_of_a_stream_are_noticed() -> None:
    x = random_points(20, 3)
    refused(DataLoader(Counted(lambda number: x, 20), batch_size=5, num_workers=2), "once per worker")


def test_a_long_first_pass_without_length_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.streams._WARN_SECONDS", 0.0)
    rows = Rows(lambda number: random_points(20, 3))
    with pytest.warns(geh.GEHWarning, match=r"5 rows were read so far.*islice") as caught:
        explain_point(model, DataLoader(rows, batch_size=5), groups=1)
    assert len([entry for entry in caught if "were read so far" in str(entry.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain_point(model, DataLoader(Counted(lambda number: random_points(20, 3), 20), batch_size=5), groups=1)


def test_a_stream_that_becomes_endless_is_refused_after_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    x = random_points(10, 3)
    rows = Rows(lambda number: x if number == 1 else itertools.cycle(x))
    refused(DataLoader(rows, batch_size=5), "gave 2 batches on its first pass, and gives more on this one")


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_batches_of_different_width_are_refused(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    rows = Rows(lambda number: [random_points(5, 3), random_points(5, 4)])
    refused(DataLoader(rows, batch_size=None), r"starts at row 5 has rows of shape \(4,\), the first one .* \(3,\)")


def test_the_length_of_a_loader_is_that_of_its_rows_or_batches() -> None:
    assert declared_length(DataLoader(list(range(10)), batch_size=4)) == Length(rows=12)
    assert declared_length(DataLoader(Counted(endless, 7), batch_size=None)) == Length(batches=7)
    assert declared_length(DataLoader(Rows(endless), batch_size=4)) == Length()


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_batches_without_rows_are_left_out(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    x = random_points(30, 3)
    batches = Rows(lambda number: [x[:0], x[:20], x[:0], x[20:]])
    result = explain_point(model, DataLoader(batches, batch_size=None), groups=1)
    assert result.signed == pytest.approx(explain_point(model, x, groups=1).signed)


def test_rows_of_several_workers_cannot_be_matched_with_arguments() -> None:
    stream = Rows(lambda number: random_points(20, 3))
    for n_workers, matched in ((0, True), (1, True), (2, False)):
        assert is_ordered(DataLoader(stream, num_workers=n_workers)) is matched
