"""Fingerprints of permutation tests: equal data have equal ones, and any changed value changes them."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from geh_explain.inference.null_targets import PermutedTarget
from geh_explain.inference.refits import Refits, fingerprint

VALUES = np.arange(12.0).reshape(6, 2)


def scores(X, y):
    return np.ones(1)


def fingerprint_of(X=VALUES, y=VALUES[:, 0], explain=None):
    return fingerprint(Refits(scores, X, PermutedTarget(y, 0), 0, "geh", explain or {}, None))


def words(values):
    return np.array([f"level {value:g}" for value in values.ravel()], dtype=object).reshape(values.shape)


def mixed(values):
    return pd.DataFrame({"number": values[:, 0], "word": words(values[:, 1])})


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        np.asfortranarray,
        torch.as_tensor,
        lambda values: torch.as_tensor(values).bfloat16().requires_grad_(),
        pd.DataFrame,
        lambda values: pd.DataFrame(values, columns=["a", "b"]).astype({"a": "float32"}),
        lambda values: pd.Series(values[:, 0]),
        lambda values: pd.Series(values[:, 0]).astype("datetime64[s]"),
        lambda values: values.tolist(),
        lambda values: (torch.as_tensor(values), values),
        words,
        mixed,
    ],
    ids=[
        "array",
        "columns first",
        "tensor",
        "half precision",
        "frame",
        "frame of two types",
        "series",
        "dates",
        "list",
        "tuple",
        "words",
        "numbers and words",
    ],
)
def test_data_are_identified_by_their_values(kind):
    changed = VALUES.copy()
    changed[4, 0] += 1
    swapped = VALUES[[1, 0, 2, 3, 4, 5]]
    original = fingerprint_of(kind(VALUES))
    assert fingerprint_of(kind(VALUES.copy())) == original
    assert fingerprint_of(copy.deepcopy(kind(VALUES))) == original
    for other in (kind(changed), kind(swapped)):
        assert [key for key, value in fingerprint_of(other).items() if value != original[key]] == ["X"]


def test_half_a_day_is_not_the_same_date():
    one, two = (pd.Series(pd.date_range("2020-01-01", periods=6, freq="D") + pd.Timedelta(h, "h")) for h in (0, 12))
    assert fingerprint_of(one)["X"] != fingerprint_of(two)["X"]
    assert fingerprint_of(one.dt.tz_localize("UTC"))["X"] != fingerprint_of(two.dt.tz_localize("UTC"))["X"]


def test_shape_type_and_column_names_count():
    prints = {
        fingerprint_of(X)["X"]
        for X in (
            VALUES,
            VALUES.astype(np.float32),
            VALUES[:, None],
            pd.DataFrame(VALUES, columns=["a", "b"]),
            pd.DataFrame(VALUES, columns=["a", "c"]),
        )
    }
    assert len(prints) == 5


def test_the_target_is_identified_by_its_values_too():
    original, other = (fingerprint_of(y=pd.Series(VALUES[:, column])) for column in (0, 1))
    assert [key for key in original if original[key] != other[key]] == ["y"]


def test_long_labels_among_the_options_are_compared_in_full():
    labels = np.zeros(5000, dtype=int)
    other = labels.copy()
    other[2500] = 1
    assert repr(labels) == repr(other)
    assert fingerprint_of(explain={"groups": labels}) == fingerprint_of(explain={"groups": labels.copy()})
    assert fingerprint_of(explain={"groups": labels})["explain"] != fingerprint_of(explain={"groups": other})["explain"]


def test_short_options_are_readable():
    assert fingerprint_of(explain={"groups": 3, "draws": 10})["explain"] == "draws=10, groups=3"
