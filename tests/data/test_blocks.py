"""Data outside of memory give the result of the same rows in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from explaining import explain_point
from networks import mlp
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import geh_explain as geh
from geh_explain.data.reader import Reader
from geh_explain.data.streams import StreamedPoints

ROWS, COLUMNS = 60, 4


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of seven rows, and no array that is too small to be read block by block."""
    monkeypatch.setattr("geh_explain.data.blocks._BLOCK_BYTES", 7 * 8 * COLUMNS)
    monkeypatch.setattr("geh_explain.data.blocks._MIN_MAPPED_BYTES", 0)


def numbers() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS))


def assert_as_in_memory(inputs: Any, **options: Any) -> None:
    """Compare the result for ``inputs`` with that of the same numbers as a tensor."""
    net = mlp(COLUMNS, 8, 1, gain=2.0)
    expected = explain_point(net, torch.from_numpy(numbers()), groups=3, **options)
    result = explain_point(net, inputs, groups=3, **options)
    np.testing.assert_array_equal(result.labels, expected.labels)
    for measure in ("geh", "aeh", "eah"):
        np.testing.assert_allclose(result.scores(measure).draws, expected.scores(measure).draws, rtol=0, atol=1e-12)
    assert [str(text) for text in result.group_descriptions] == [
        str(text).replace("x", result.names[0][:-1]) for text in expected.group_descriptions
    ]


def mapped(tmp_path: Path, mode: Any, values: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    np.save(tmp_path / "x.npy", numbers() if values is None else values)
    loaded: np.ndarray[Any, Any] = np.load(tmp_path / "x.npy", mmap_mode=mode)
    return loaded


# Memory-mapped arrays.


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_memory_mapped_array_is_streamed(tmp_path: Path, mode: str) -> None:
    x = mapped(tmp_path, mode)
    points = Reader(dtype=torch.double).read(x)
    assert isinstance(points, StreamedPoints)
    assert [len(rows) for rows in points.batches()] == [7] * 8 + [4]
    assert_as_in_memory(x)


def test_changes_of_a_private_mapping_are_kept(tmp_path: Path) -> None:
    x = mapped(tmp_path, "c", np.zeros((ROWS, COLUMNS)))
    x[:] = numbers()
    assert_as_in_memory(x)
    np.testing.assert_array_equal(x, numbers())


def test_a_part_of_a_memory_mapped_array_is_that_part(tmp_path: Path) -> None:
    whole = np.repeat(numbers(), 2, axis=0)
    assert_as_in_memory(mapped(tmp_path, "r", whole)[::2])


def test_a_memory_mapped_array_takes_one_target_per_row(tmp_path: Path) -> None:
    net, target = mlp(COLUMNS, 8, 3, gain=2.0), np.arange(ROWS) % 3
    of_file, of_tensor = (
        explain_point(net, x, target, groups=1) for x in (mapped(tmp_path, "r"), torch.from_numpy(numbers()))
    )
    np.testing.assert_allclose(of_file.signed, of_tensor.signed, rtol=0, atol=1e-12)


def test_a_bad_value_of_a_memory_mapped_array_is_named_by_its_row(tmp_path: Path) -> None:
    bad = numbers()
    bad[33, 2] = np.nan
    with pytest.raises(geh.GEHError, match=r"inputs: 1 of 7 rows have NaN.*row 33, column 2"):
        explain_point(mlp(COLUMNS, 8, 1), mapped(tmp_path, "r", bad))


# Dask arrays.


@pytest.mark.parametrize("chunks", [(7, COLUMNS), (25, 3), (ROWS, 1)])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_dask_array_is_read_by_its_blocks(
    chunks: tuple[int, int], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = pytest.importorskip("dask.array")
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    assert_as_in_memory(arrays.from_array(numbers(), chunks=chunks))


def test_a_dask_array_without_rows_is_refused() -> None:
    arrays = pytest.importorskip("dask.array")
    for empty, words in ((arrays.zeros((0, 4)), "is empty"), (arrays.zeros(()), "has no rows")):
        with pytest.raises(geh.GEHError, match=rf"inputs: .*{words}"):
            explain_point(mlp(COLUMNS, 8, 1), empty)


# Arrow data sets: by the interface, and by pyarrow itself.


class Column:
    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def to_numpy(self, zero_copy_only: bool) -> np.ndarray[Any, Any]:
        assert not zero_copy_only  # columns with nulls or booleans are converted
        return self.values


class ArrowLike:
    """What the package uses of a data set of Arrow: names of columns, and batches of columns, some of them empty."""

    def __init__(self, columns: dict[str, np.ndarray[Any, Any]]) -> None:
        self.columns_of = columns
        self.schema = SimpleNamespace(names=list(columns))

    def count_rows(self) -> int:
        return ROWS

    def to_batches(self, batch_size: int) -> Any:
        yield SimpleNamespace(num_rows=0)
        for start in range(0, ROWS, batch_size):
            parts = [Column(values[start : start + batch_size]) for values in self.columns_of.values()]
            yield SimpleNamespace(num_rows=len(parts[0].values), column=parts.__getitem__)


def table() -> dict[str, np.ndarray[Any, Any]]:
    return {f"c{number}": column for number, column in enumerate(numbers().T)}


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_an_arrow_data_set_has_rows_and_names_of_columns(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    assert_as_in_memory(ArrowLike(table()))
    assert explain_point(mlp(COLUMNS, 8, 1), ArrowLike(table()), groups=1).names == ["c0", "c1", "c2", "c3"]


def test_columns_of_an_arrow_data_set_must_be_numbers_without_nulls() -> None:
    text = {**table(), "place": np.array(["sea"] * ROWS, dtype=object)}
    with pytest.raises(geh.GEHError, match=r"inputs: the columns \['place'\] are not numbers.*replace_schema"):
        explain_point(mlp(COLUMNS, 8, 1), ArrowLike(text))
    gap = table()
    gap["c1"] = np.where(np.arange(ROWS) == 20, np.nan, gap["c1"])
    with pytest.raises(geh.GEHError, match="row 20, column 'c1'"):
        explain_point(mlp(COLUMNS, 8, 1), ArrowLike(gap))


@pytest.mark.parametrize(
    ("names", "words"), [([], "no columns"), (["a", "b", "a"], r"several columns with the names \['a'\]")]
)
def test_columns_of_an_arrow_data_set_have_names_of_their_own(names: list[str], words: str) -> None:
    data = ArrowLike(table())
    data.schema = SimpleNamespace(names=names)
    with pytest.raises(geh.GEHError, match=f"inputs: the data set has {words}"):
        explain_point(mlp(COLUMNS, 8, 1), data)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_folder_of_parquet_files_is_read_batch_by_batch(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    dataset, parquet = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", share)
    for part, columns in enumerate(np.split(numbers(), 3)):
        named = {f"c{number}": column for number, column in enumerate(columns.T)}
        parquet.write_table(pyarrow.table({**named, "place": ["sea"] * len(columns)}), tmp_path / f"{part}.parquet")
    whole = dataset.dataset(tmp_path)
    with pytest.raises(geh.GEHError, match=r"the columns \['place'\] are not numbers"):
        explain_point(mlp(COLUMNS, 8, 1), whole)
    assert_as_in_memory(
        whole.replace_schema(pyarrow.schema([field for field in whole.schema if field.name != "place"]))
    )


# The number of passes.


class CountedRows(IterableDataset):
    """Rows of an array in batches of ten; ``passes`` counts how often they were read to the end."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.passes = x, 0

    def __iter__(self) -> Any:
        yield from self.x.split(10)
        self.passes += 1


@pytest.mark.parametrize("draws", [1, 5])
def test_a_stream_is_read_once_per_draw_and_four_times_in_addition(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Counting and hashing, positions, labels, and rows that describe the groups.
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    monkeypatch.setattr("geh_explain.groups.positions.MAX_POINTS", 30)
    rows = CountedRows(torch.from_numpy(numbers()))
    net = mlp(COLUMNS, 8, 1, dropout=0.2)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
    # A chunk of 20 rows: a draw of 60 rows needs several, so that draws are not computed at once.
    explainer.explain(DataLoader(rows, batch_size=None), draws=draws, groups=2, batch_size=20, progress=False)
    assert rows.passes == draws + 4
