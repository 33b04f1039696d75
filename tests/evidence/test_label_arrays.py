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
X = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0)).double()
Y = (X[:, 0] * X[:, 1] + 0.5 * torch.randn(ROWS, generator=torch.Generator().manual_seed(1))).numpy()
TEXT = np.where(Y > 0, "high", "a low one")


def p_value(y):
    """Return the p-value of the only pair."""
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    return explainer.test_pairs(X, y, progress=False).p_value[0]


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(TEXT).astype("string"),
        pd.Series(TEXT).astype("category"),
        pd.Series(Y > 0).astype("boolean"),
        pd.Series(Y).astype("Float64"),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_missing_values_of_pandas_are_named_by_row(labels):
    expected = Y if labels.dtype == "Float64" else Y > 0
    assert p_value(labels) == p_value(expected)
    labels = labels.copy()
    labels[[7, 9]] = pd.NA
    with pytest.raises(GEHValueError, match="missing or infinite in 2 rows, first in row 7"):
        p_value(labels)


def test_an_infinite_label_among_objects_is_missing():
    with pytest.raises(GEHValueError, match="missing or infinite in 1 rows, first in row 0"):
        p_value(np.array([np.inf, *Y[1:]], dtype=object))


def test_decimals_and_sparse_tensors_are_converted():
    assert p_value([Decimal(float(value)) for value in Y]) == p_value(Y)
    assert p_value(torch.as_tensor(Y).to_sparse()) == p_value(Y)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (Y + 1j, GEHTypeError, "complex128, complex numbers; give real numbers"),
        (torch.as_tensor(Y + 1j), GEHTypeError, "complex128, complex numbers"),
        (list(Y + 1j), GEHTypeError, "complex128, complex numbers"),
        (pd.date_range("2020", periods=ROWS), GEHTypeError, "datetime64.*, dates; give numbers"),
        (pd.to_timedelta(np.arange(ROWS), unit="D"), GEHTypeError, "timedelta64.*, durations; give numbers"),
        ([datetime.date(2020, 1, 1 + row % 3) for row in range(ROWS)], GEHTypeError, "labels of type date; give"),
        (pd.Series(["yes", 1] * (ROWS // 2)), GEHTypeError, "labels of type int and str; give all numbers, or all"),
        ([f"{value:.3f}" for value in Y], GEHValueError, r"numbers as text, such as '.*convert them, np.asarray"),
        (pd.Series(Y.round(3)).astype("string"), GEHValueError, "numbers as text"),
        ((value for value in Y), GEHTypeError, r"y is a generator; .*list\(y\)"),
        ({"y": Y}, GEHTypeError, "y is a dict; .*the entry of y"),
        (sparse.csr_matrix(Y[:, None]), GEHTypeError, r"y is a csr_matrix; .*y.toarray\(\)"),
        (None, GEHTypeError, "y is a NoneType; .*a column of a data frame"),
    ],
)
def test_labels_that_are_no_labels_are_refused_by_what_they_are(labels, error, message):
    with pytest.raises(GEHError, match=message) as caught:
        p_value(labels)
    assert type(caught.value) is error


def test_two_numbers_as_text_are_two_classes():
    assert p_value((Y > 0).astype(int).astype(str)) == p_value(Y > 0)
