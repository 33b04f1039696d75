"""Rows carry their arguments along, and points have a hash that needs no pass over a loader."""

import hashlib

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.reader import Reader
from geh_explain.data.rows import Rows
from geh_explain.data.streams import StreamedPoints


def rows_with_arguments() -> Rows:
    """Three rows with a target, a tensor, an array and a list per row, and two arguments for all rows."""
    per_row = (torch.arange(3.0), np.array([5, 6, 7]), ["a", "b", "c"])
    for_all = (torch.ones(2), "word")
    return Rows((torch.arange(6.0).reshape(3, 2),), ForwardArgs.of([0, 1, 2], (*per_row, *for_all), 3), start=10)


def plain(rows: Rows) -> list[object]:
    return [x.tolist() if isinstance(x, (Tensor, np.ndarray)) else x for x in (*rows.inputs, *rows.forward_args.values)]


def test_a_slice_of_rows_has_the_arguments_of_these_rows() -> None:
    part = rows_with_arguments()[1:]
    assert plain(part) == [[[2, 3], [4, 5]], [1, 2], [1, 2], [6, 7], ["b", "c"], [1, 1], "word"]
    assert (part.start, part.index_of(1)) == (11, 12)


def test_repeated_rows_are_blocks_of_all_rows() -> None:
    twice = rows_with_arguments()[1:].repeat(2)
    block = [1, 2, 1, 2]
    letters = ["b", "c", "b", "c"]
    assert plain(twice) == [[[2, 3], [4, 5]] * 2, block, block, [6, 7, 6, 7], letters, [1, 1], "word"]
    assert [twice.index_of(row) for row in range(4)] == [11, 12, 11, 12]


def test_rows_in_another_order_have_their_arguments() -> None:
    reversed_rows = rows_with_arguments().take([2, 1, 0])
    assert plain(reversed_rows) == [
        [[4, 5], [2, 3], [0, 1]],
        [2, 1, 0],
        [2, 1, 0],
        [7, 6, 5],
        ["c", "b", "a"],
        [1, 1],
        "word",
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_parts_of_a_split_are_all_rows_in_order(size: int) -> None:
    parts = list(rows_with_arguments().split(size))
    assert [len(part) for part in parts] == [min(size, 3 - start) for start in range(0, 3, size)]
    assert torch.equal(torch.cat([part.inputs[0] for part in parts]), torch.arange(6.0).reshape(3, 2))
    assert [part.start for part in parts] == list(range(10, 13, size))


# Hashes.


def in_memory(*inputs: Tensor) -> InMemoryPoints:
    return InMemoryPoints(Rows(inputs, ForwardArgs.of(None, (), len(inputs[0]))))


def test_the_hash_of_points_in_memory_is_that_of_type_dtype_shape_and_bytes() -> None:
    x, ids = torch.arange(6.0).reshape(3, 2), torch.arange(3)
    state = hashlib.sha256(b"Tensortorch.float32(3, 2)" + x.numpy().tobytes())
    state.update(b"Tensortorch.int64(3,)" + ids.numpy().tobytes())
    assert in_memory(x, ids).digest() == state.hexdigest()[:16]


def test_points_that_differ_in_one_value_dtype_or_shape_have_other_hashes() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    changed = x.clone()
    changed[2, 1] += 1e-6
    variants = [(x,), (changed,), (x.double(),), (x[:, None],), (x, x), (x.flip(0),)]
    assert len({in_memory(*inputs).digest() for inputs in variants}) == len(variants)
    assert in_memory(x.T.contiguous().T).digest() == in_memory(x).digest()


class CountedPasses(IterableDataset):
    """Rows of a tensor; ``passes`` counts how often they were read."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.passes = x, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.x)


@pytest.fixture
def _streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)


@pytest.mark.usefixtures("_streamed")
def test_the_hash_of_streamed_points_needs_no_pass_over_the_loader() -> None:
    dataset = CountedPasses(torch.arange(20.0).reshape(10, 2))
    points = Reader().read(DataLoader(dataset, batch_size=4))
    assert isinstance(points, StreamedPoints)
    passes = dataset.passes
    digest = points.digest()
    assert dataset.passes == passes
    assert len(list(points.batches())) == 3
    assert points.digest() == digest


@pytest.mark.usefixtures("_streamed")
def test_the_hash_of_streamed_points_changes_with_any_batch() -> None:
    x = torch.arange(20.0).reshape(10, 2)
    changed, swapped = x.clone(), x[[1, 0, *range(2, 10)]]
    changed[9, 1] += 1e-5

    def digest(rows: Tensor, batch_size: int = 4) -> str:
        return Reader().read(DataLoader(TensorDataset(rows), batch_size=batch_size)).digest()

    assert digest(x) == digest(x.clone())
    assert len({digest(x), digest(changed), digest(swapped), digest(x[:9]), digest(x, 5)}) == 5
