"""Digests of models, posteriors and data: equal for equal contents."""

from collections import deque
from datetime import date

import numpy as np
import pandas as pd
import pytest
from interrupted_runs import ensemble, network
from torch import nn

from geh_explain._hashing import attribute_digests, digest


def test_a_digest_tells_contents_apart():
    net = network()
    assert digest(net) == digest(network()) != digest(network(seed=1))
    assert digest(network(drop=0.1)) != digest(network(drop=0.2))
    assert digest(ensemble()) == digest(ensemble())
    assert digest(lambda x: x) != digest(len)
    loop: list[object] = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)
    assert digest({"a": np.arange(3)}) != digest({"a": np.arange(3.0)})


def test_sets_are_hashed_by_their_entries_in_any_order():
    assert digest({"a", "b", 3}) == digest({3, "b", "a"}) != digest({"a", "b", 4})
    assert digest(frozenset("ab")) != digest({"a", "b"})
    assert digest(slice(1, 2)) != digest(slice(1, 3))


def test_modules_that_refer_to_each_other_are_hashed_once():
    net = nn.Sequential(*(nn.Linear(1, 1) for _ in range(30)))
    for layer in net:
        layer._parent, layer._others = [net], list(net)
    assert digest(net) == digest(net)
    before = attribute_digests(net)
    net[3]._others = [nn.Linear(1, 1)]
    assert {key for key, value in attribute_digests(net).items() if before[key] != value} == {"3._others"}


@pytest.mark.parametrize(
    "make",
    [
        pd.Series,
        pd.Index,
        pd.Categorical,
        deque,
        lambda values: pd.DataFrame({"a": values}),
        lambda values: np.array(values, dtype=object),
        lambda values: [date(2020, 1, day) for day in values],
        lambda values: pd.Series(pd.to_datetime(["2020-01-01"] * 2) + pd.to_timedelta(values, unit="D")),
    ],
)
def test_columns_and_objects_are_hashed_by_their_values(make):
    assert digest(make([1, 2])) == digest(make([1, 2])) != digest(make([1, 3]))


def test_tables_are_hashed_with_their_columns_and_arrays_that_hold_themselves_are_hashed():
    assert digest(pd.DataFrame({"a": [1]})) != digest(pd.DataFrame({"b": [1]}))
    loop = np.array([1, None], dtype=object)
    loop[1] = loop
    assert digest(loop) == digest(loop)
