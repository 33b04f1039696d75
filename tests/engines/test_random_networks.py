"""Networks of parts of many kinds against two plain backward passes; more of them in the long tests."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from network_modules import ROWS, Call, fixed
from random_networks import (
    ESSENTIAL_PARTS,
    Case,
    RowsSecond,
    build,
    cases,
    check,
    check_part,
    data,
    for_parts,
)

import geh_explain as geh


@for_parts(ESSENTIAL_PARTS)
def test_each_part_alone_has_the_hessians_of_two_plain_backward_passes(kind: str, name: str) -> None:
    check_part(kind, name)


@fixed
@given(case=cases())
def test_a_random_network_has_the_hessians_of_two_plain_backward_passes(case: Case) -> None:
    check(case)


def test_a_layer_with_its_rows_in_the_second_dimension_is_refused_even_with_as_many_tokens_as_rows() -> None:
    model, x = RowsSecond().double(), data((ROWS, 3), 0)
    for engine in ("auto", "exact"):
        explainer = geh.GEHExplainer(model, "cell", posterior=geh.posterior.PointEstimate(), engine=engine)
        with pytest.raises(geh.GEHError, match="first dimension must be the rows"):
            explainer.explain(x, groups=1, progress=False)


def test_a_network_that_torch_cannot_differentiate_is_refused_or_explained_by_differences() -> None:
    model = build("vector", (4,), ["Linear"], 1, 0).append(Call("tanh, then in place", lambda x: x.tanh().mul_(2)))
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(data((4,), 0), groups=1, progress=False)
    assert result.settings["engine"] == "difference"
