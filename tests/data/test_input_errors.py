"""Errors for wrong inputs, and for loaders whose later passes yield other rows than the first."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import ROWS, Applied, Net, cases, frame, refused, valid_points
from explaining import explain_point, uniform_points
from scipy.sparse import csr_matrix
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import geh_explain as geh
from geh_explain.posterior import PointEstimate

pytestmark = pytest.mark.usefixtures("seeded")


# Inputs


def with_bad_value(value, row=7):
    inputs = valid_points()
    inputs[row, 2] = value
    return inputs


def as_frame(inputs):
    return pd.DataFrame(inputs.numpy(), columns=["age", "size", "rooms"])


def as_loader(inputs):
    return DataLoader(TensorDataset(inputs), batch_size=5)


def masked(*entries, inputs=None):
    inputs = np.ma.masked_array(valid_points().numpy() if inputs is None else inputs)
    for entry in entries:
        inputs[entry] = np.ma.masked
    return inputs


class Empty(Dataset):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError


@cases(
    {
        "whole numbers": (torch.ones(4, 3, dtype=torch.long), TypeError, "inputs", "int64", ".float()", "embedding"),
        "whole number array": (np.ones((4, 3), int), TypeError, "inputs", "int64", "embedding"),
        "text array": (np.array([["a", "b", "c"]]), TypeError, "inputs", "not numbers", "float32"),
        "object array": (np.array([[1.0, None, 2.0]], dtype=object), TypeError, "inputs", "object", "float32"),
        "NaN": (with_bad_value(torch.nan), ValueError, "inputs", "row 7", "column 2", "impute"),
        "NaN in an array": (with_bad_value(torch.nan).numpy(), ValueError, "inputs", "row 7", "column 2"),
        "NaN in a frame": (as_frame(with_bad_value(torch.nan)), ValueError, "inputs", "row 7", "column 'rooms'"),
        "NaN in a loader": (as_loader(with_bad_value(torch.nan, 17)), ValueError, "inputs", "row 17", "column 2"),
        "infinity": (with_bad_value(torch.inf), ValueError, "inputs", "row 7", "infinite"),
        "masked": (masked((3, 2), (4, 1)), ValueError, "inputs", "2 of 72 entries", "masked", "inputs.filled("),
        "masked in a tuple": ((masked((3, 2)),), ValueError, "inputs", "1 of 72 entries", "masked"),
        "missing values": (
            pd.DataFrame({"age": pd.array([1, None, 3], dtype="Int64"), "size": 1.0, "rooms": 2.0}),
            *(ValueError, "inputs", "row 1", "column 'age'"),
        ),
        "text column": (frame().assign(age="old"), TypeError, "inputs", "['age']", "get_dummies"),
        "category": (frame().assign(age=pd.Categorical(["a"] * ROWS)), TypeError, "inputs", "['age']", "get_dummies"),
        "dates": (frame().assign(age=pd.Timestamp("2020-01-01")), TypeError, "inputs", "['age']", "numbers"),
        "no rows": (torch.empty(0, 3), ValueError, "inputs", "empty"),
        "no rows in an array": (np.empty((0, 3), np.float32), ValueError, "inputs", "empty"),
        "no rows in a frame": (frame().iloc[:0], ValueError, "inputs", "empty"),
        "no rows in a loader": (as_loader(torch.empty(0, 3)), ValueError, "inputs", "empty"),
        "no rows in a dataset": (Empty(), ValueError, "inputs", "empty"),
        "no columns": (torch.empty(5, 0), ValueError, "inputs", "needs two"),
        "scalar": (torch.tensor(1.0), ValueError, "inputs", "first dimension is the rows"),
        "empty tuple": ((), ValueError, "inputs=()", "at least one tensor"),
        "tuple of unequal lengths": ((valid_points(), valid_points(4)), ValueError, "inputs", "[24, 4] rows", "agree"),
        "sparse": (valid_points().to_sparse(), TypeError, "inputs", "sparse", "inputs.to_dense()"),
        "sparse of SciPy": (csr_matrix(valid_points().numpy()), TypeError, "inputs", "csr_matrix", "toarray()"),
        "complex": (valid_points().to(torch.complex64), TypeError, "inputs", "complex64", "view_as_real"),
        "complex array": (np.ones((4, 3), complex), TypeError, "inputs", "complex128", "real and imaginary"),
        "list of tensors": (list(valid_points()), TypeError, "inputs", "list", "torch.stack(inputs)"),
        "column": (pd.Series([1.0, 2.0]), TypeError, "inputs", "Series", "to_frame()"),
        "list": ([[1.0, 2.0, 3.0]], TypeError, "inputs", "list", "tensor"),
        "empty dict": ({}, ValueError, "inputs", "empty", "tensor"),
        "nothing": (None, TypeError, "inputs", "NoneType", "tensor"),
        "loader of dicts": (DataLoader([{"x": 1.0}]), TypeError, "inputs", "dict", "tensor"),
    }
)
def test_wrong_inputs_are_refused(call, kind, words):
    with refused(kind, *words):
        geh.GEHExplainer(Net(), posterior=PointEstimate()).explain(call, groups=1, progress=False)


def test_a_masked_array_without_masked_entries_is_data():
    net = Net()
    found, expected = (explain_point(net, x, groups=1) for x in (masked(), valid_points()))
    np.testing.assert_array_equal(found.geh.mean, expected.geh.mean)


@cases(
    {
        "target": ({"target": masked(2, inputs=np.zeros(ROWS, int))}, ValueError, "target", "1 of 24", "masked"),
        "scale": ({"scale": masked(1, inputs=np.ones(3))}, ValueError, "scale", "1 of 3", "masked"),
        "groups": ({"groups": masked(1, inputs=np.zeros(ROWS, int))}, ValueError, "groups", "missing labels"),
    }
)
def test_masked_arguments_are_refused(call, kind, words):
    with refused(kind, *words):
        explain_point(Net(), valid_points(), **{"groups": 1, **call})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compressed_and_nested_tensors_are_refused():
    with refused(TypeError, "inputs", "sparse_csr", "inputs.to_dense()"):
        explain_point(Net(), valid_points().to_sparse_csr())
    with refused(TypeError, "inputs", "nested", "to_padded_tensor"):
        explain_point(Net(), torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]))


UNUSUAL = {
    "backwards": lambda x: x[::-1],
    "every other": lambda x: x[:, ::2],
    "of the other endianness": lambda x: x.astype(">f4"),
    "long doubles": lambda x: x.astype(np.longdouble),
    "half precision": lambda x: x.astype(np.float16),
}


@pytest.mark.parametrize("layout", UNUSUAL)
def test_an_array_in_an_unusual_layout_is_read(layout):
    array = UNUSUAL[layout](valid_points().numpy())
    usual = torch.tensor(np.ascontiguousarray(array, dtype=np.float32))
    model = Applied(lambda x: (x * x.flip(1)).sum(1).sin())
    expected = explain_point(model, usual, groups=2).signed
    warned = pytest.warns(geh.GEHWarning, match="inputs: they are torch.float16.*Pass them in torch.float32")
    with warned if layout == "half precision" else nullcontext():
        signed = explain_point(model, array, groups=2).signed
    assert np.allclose(signed, expected, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("kind", ["array", "frame", "frame of doubles"])
def test_read_only_arrays_give_no_warning_of_torch(kind):
    array = valid_points().numpy().copy()
    array.flags.writeable = False
    inputs = {"array": array, "frame": pd.DataFrame(array), "frame of doubles": pd.DataFrame(array.astype(float))}[kind]
    model, always = Net(), torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        result = explain_point(model, inputs, groups=2)
    finally:
        torch.set_warn_always(always)
    assert np.allclose(result.signed, explain_point(model, valid_points(), groups=2).signed, rtol=1e-6)


# Loaders that are streamed


class Streaming(IterableDataset):
    """Yields ``rows(number)`` on pass ``number``, counted from 1."""

    def __init__(self, rows):
        self.rows, self.passes = rows, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.rows(self.passes))


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)


def whole_points():
    return torch.arange(3.0 * ROWS).reshape(ROWS, 3) % 7


def permuted(number):
    return whole_points()[torch.randperm(ROWS, generator=torch.Generator().manual_seed(number))]


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("batch_size", [5, ROWS])
@pytest.mark.parametrize(
    "rows",
    [
        lambda number: valid_points() + number,
        permuted,
        lambda number: valid_points() if number < 3 else valid_points().flip(1),
    ],
    ids=["others", "permuted", "other columns"],
)
def test_a_loader_that_gives_other_rows_later_is_refused(rows, batch_size):
    with refused(RuntimeError, "inputs", "loader", "first pass", "pass a tensor"):
        explain_point(Net(), DataLoader(Streaming(rows), batch_size=batch_size), groups=2)


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("later", [8, 10, 50])
def test_a_loader_that_gives_another_number_of_rows_later_is_refused(later):
    data = valid_points(50)
    loader = DataLoader(Streaming(lambda number: data[: 20 if number < 3 else later]), batch_size=5)
    with refused(RuntimeError, "inputs", "loader", "first pass"):
        explain_point(Net(), loader, groups=2)


@pytest.mark.usefixtures("streamed")
def test_a_loader_that_can_be_read_once_is_refused():
    rows = iter(valid_points())
    with refused((RuntimeError, ValueError), "inputs", "loader"):
        explain_point(Net(), DataLoader(Streaming(lambda number: rows), batch_size=5), groups=2)


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("own", [False, True], ids=["global generator", "own generator"])
def test_a_shuffling_loader_repeats_itself_when_it_is_streamed(own):
    generator = torch.Generator().manual_seed(3) if own else None
    loader = DataLoader(TensorDataset(valid_points()), batch_size=5, shuffle=True, generator=generator)
    model, before = Net(), generator.get_state() if own else None
    assert np.allclose(
        explain_point(model, loader, groups=2).aeh.mean,
        explain_point(model, valid_points(), groups=2).aeh.mean,
        rtol=1e-4,
    )
    assert not own or torch.equal(generator.get_state(), before)


def test_a_missing_batch_dimension_is_suspected():
    with pytest.raises(geh.GEHError, match="batch dimension missing"):
        explain_point(lambda x: x**2, uniform_points(1, 4)[0])
