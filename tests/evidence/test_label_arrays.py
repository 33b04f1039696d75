"""Held-out labels of all types: converted, or refused with a way out."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import geh_explain as geh
from geh_explain.errors import GEHError, GEHTypeError, GEHValueError

ROWS = 200


def inputs():
    return torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0)).double()


@pytest.fixture(scope="module")
def y():
    x = inputs()
    return (x[:, 0] * x[:, 1] + 0.5 * torch.randn(ROWS, generator=torch.Generator().manual_seed(1))).numpy()


def p_value(y):
    """Return the p-value of the only pair."""
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    return explainer.test_pairs(inputs(), y, progress=False).p_value[0]


@pytest.mark.parametrize("dtype", ["string", "category", "boolean", "Float64"])
def test_missing_values_of_pandas_are_named_by_row(y, dtype):
    values = {"boolean": y > 0, "Float64": y}.get(dtype, np.where(y > 0, "high", "a low one"))
    labels = pd.Series(values).astype(dtype)
    assert p_value(labels) == p_value(y if dtype == "Float64" else y > 0)
    labels[[7, 9]] = pd.NA
    with pytest.raises(GEHValueError, match="missing or infinite in 2 rows, first in row 7"):
        p_value(labels)


def test_an_infinite_label_among_objects_is_missing(y):
    with pytest.raises(GEHValueError, match="missing or infinite in 1 rows, first in row 0"):
        p_value(np.array([np.inf, *y[1:]], dtype=object))


def test_decimals_and_sparse_tensors_are_converted(y):
    assert p_value([Decimal(float(value)) for value in y]) == p_value(y)
    assert p_value(torch.as_tensor(y).to_sparse()) == p_value(y)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (lambda y: y + 1j, GEHTypeError, "complex128, complex numbers; give real numbers"),
        (lambda y: torch.as_tensor(y + 1j), GEHTypeError, "complex128, complex numbers"),
        (lambda y: list(y + 1j), GEHTypeError, "complex128, complex numbers"),
        (lambda y: pd.date_range("2020", periods=ROWS), GEHTypeError, "datetime64.*, dates; give numbers"),
        (lambda y: pd.to_timedelta(np.arange(ROWS), unit="D"), GEHTypeError, "timedelta64.*, durations; give numbers"),
        (
            lambda y: [datetime.date(2020, 1, 1 + row % 3) for row in range(ROWS)],
            GEHTypeError,
            "labels of type date; give",
        ),
        (
            lambda y: pd.Series(["yes", 1] * (ROWS // 2)),
            GEHTypeError,
            "labels of type int and str; give all numbers, or all",
        ),
        (
            lambda y: [f"{value:.3f}" for value in y],
            GEHValueError,
            r"numbers as text, such as '.*convert them, np.asarray",
        ),
        (lambda y: pd.Series(y.round(3)).astype("string"), GEHValueError, "numbers as text"),
        (lambda y: (value for value in y), GEHTypeError, r"y is a generator; .*list\(y\)"),
        (lambda y: {"y": y}, GEHTypeError, "y is a dict; .*the entry of y"),
        (lambda y: sparse.csr_matrix(y[:, None]), GEHTypeError, r"y is a csr_matrix; .*y.toarray\(\)"),
        (lambda y: None, GEHTypeError, "y is a NoneType; .*a column of a data frame"),
    ],
)
def test_labels_that_are_no_labels_are_refused_by_what_they_are(y, labels, error, message):
    with pytest.raises(GEHError, match=message) as caught:
        p_value(labels(y))
    assert type(caught.value) is error


def test_two_numbers_as_text_are_two_classes(y):
    assert p_value((y > 0).astype(int).astype(str)) == p_value(y > 0)
