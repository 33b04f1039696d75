"""Errors for wrong unit sets: their type, and what the message names."""

import pytest
from expected_errors import Net, cases, frame, refused, valid_points
from explaining import explain_point
from torch import nn

from geh_explain.units import Channels, FeatureGroups, Subset

pytestmark = pytest.mark.usefixtures("seeded")


def with_units(make, inputs=None):
    inputs = valid_points() if inputs is None else inputs
    return lambda: explain_point(Net(), inputs, units=make(), groups=2)


@cases(
    {
        "one feature": (
            lambda: explain_point(lambda x: x[:, 0] ** 2, valid_points()[:, :1], groups=2),
            ValueError,
            "inputs",
            "1 unit",
            "needs two",
        ),
        "one neuron": (
            lambda: explain_point(nn.Sequential(nn.Linear(3, 1), nn.Tanh()), valid_points(), layer="0", groups=2),
            *(ValueError, "layer '0'", "1 unit", "needs two"),
        ),
        "one chosen": (with_units(lambda: Subset([0])), ValueError, "Subset([0]", "needs two"),
        "Subset out of range": (with_units(lambda: Subset([0, 9])), ValueError, "Subset", "3 units", "0 to 2", "[9]"),
        "Subset below 0": (with_units(lambda: Subset([0, -1])), ValueError, "Subset", "0 to 2", "[-1]"),
        "Subset twice": (with_units(lambda: Subset([0, 0])), ValueError, "Subset([0, 0])", "only once"),
        "Subset empty": (with_units(lambda: Subset([])), ValueError, "Subset([])", "at least one"),
        "Subset of fractions": (with_units(lambda: Subset([0.5, 1.0])), ValueError, "Subset", "whole number"),
        "Subset number": (with_units(lambda: Subset(2)), (TypeError, ValueError), "Subset", "index"),
        "Subset mask": (with_units(lambda: Subset([True, False])), (TypeError, ValueError), "Subset", "whole number"),
        "Channels beyond": (with_units(lambda: Channels(dim=9)), ValueError, "Channels(dim=9)", "2 dimensions"),
        "Channels of the batch": (with_units(lambda: Channels(dim=0)), ValueError, "Channels(dim=0)", "2 dimensions"),
        "Channels word": (with_units(lambda: Channels(dim="last")), (TypeError, ValueError), "Channels", "dim='last'"),
        "Channels between": (with_units(lambda: Channels(dim=1.5)), (TypeError, ValueError), "Channels", "dim=1.5"),
    }
)
def test_wrong_units_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def with_groups_of_features(groups, inputs=None):
    return with_units(lambda: FeatureGroups(groups), inputs)


@cases(
    {
        "unknown column": (
            with_groups_of_features({"a": ["age"], "b": ["weight"]}, frame()),
            *(ValueError, "FeatureGroups", "'b'", "'weight'", "['age', 'size', 'rooms']"),
        ),
        "name without names": (
            with_groups_of_features({"a": ["age"], "b": [1]}),
            *(ValueError, "FeatureGroups", "'age'", "no column names"),
        ),
        "number beyond": (with_groups_of_features({"a": [0], "b": [7]}), ValueError, "FeatureGroups", "7", "3 columns"),
        "overlapping": (
            with_groups_of_features({"a": [0, 1], "b": [1, 2]}),
            *(ValueError, "FeatureGroups", "column in two groups", "every column one group"),
        ),
        "overlapping from behind": (with_groups_of_features({"a": [2], "b": [-1]}), ValueError, "in two groups"),
        "empty group": (with_groups_of_features({"a": [], "b": [1]}), ValueError, "empty group", "at least one"),
        "no group": (with_groups_of_features({}), TypeError, "FeatureGroups", "mapping"),
        "list": (with_groups_of_features([[0], [1]]), TypeError, "FeatureGroups", "mapping"),
        "number for a list": (
            with_groups_of_features({"a": 0, "b": 1}),
            (TypeError, ValueError),
            "FeatureGroups",
            "'a'",
        ),
        "fraction": (with_groups_of_features({"a": [0.5], "b": [1]}), (TypeError, ValueError), "FeatureGroups", "0.5"),
    }
)
def test_wrong_groups_of_features_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_one_name_is_not_taken_for_a_list_of_letters():
    with refused(TypeError, "FeatureGroups", "group 'who' has the columns 'age'", "as a list"):
        with_groups_of_features({"who": "age", "what": "size"}, frame())()
