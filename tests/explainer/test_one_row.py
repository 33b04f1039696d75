"""``explain`` of a single row, and what ``explain_row`` remembers."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points

import geh_explain as geh


def product(x):
    return x[:, 0] * x[:, 1]


def test_one_row_has_no_standard_deviation():
    with pytest.warns(geh.GEHWarning, match=r"scale='std': there is only one point.*explainer\.explain_row"):
        point_explainer(product).explain(random_points(1, 2), groups=1, scale="std", progress=False)


@pytest.mark.parametrize("engine", ["difference", geh.engines.Difference(baseline="mean")])
def test_one_row_has_no_steps(engine):
    with pytest.raises(geh.GEHError, match=r"there is one point: all steps would be 0\. Use explainer\.explain_row"):
        point_explainer(product, engine=engine).explain(random_points(1, 2), groups=1, progress=False)


def test_one_row_can_be_explained_by_differences_towards_a_baseline():
    result = point_explainer(product, engine=geh.engines.Difference(baseline=0)).explain(
        random_points(1, 2), groups=1, progress=False
    )
    assert result.geh.mean[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("detach", [False, True])
def test_one_row_of_a_black_box_is_refused_with_a_way_out(detach):
    def black_box(x):
        values = (x.detach() if detach else x).numpy()
        return torch.as_tensor(values[:, 0] * values[:, 1])

    with pytest.raises(geh.GEHError, match=r"explainer\.explain_row"):
        point_explainer(black_box).explain(random_points(1, 2), groups=1, progress=False)


def test_a_call_that_fails_is_not_remembered():
    explainer = point_explainer(product)
    with pytest.raises(geh.GEHError):
        explainer.explain(random_points(5, 2), groups=7, draws=0, progress=False)
    with pytest.raises(geh.GEHError, match="there are no data"):
        explainer.explain_row(random_points(1, 2), progress=False)


def test_columns_in_another_order_than_in_the_last_explanation_are_refused() -> None:
    """The mean of another column would be the baseline."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["age", "bmi"])
    explainer = point_explainer(lambda frame: (frame["age"] * frame["bmi"]).to_numpy(), engine="difference")
    explainer.explain(frame, groups=1, progress=False)
    expected = float(frame["age"].mean() * frame["bmi"].mean())
    assert explainer.explain_row(frame.iloc[[0]], progress=False).reference == pytest.approx(expected)
    with pytest.raises(geh.GEHError, match=r"the inputs of the last explain.*\['age', 'bmi'\].*same order"):
        explainer.explain_row(frame.iloc[[0]][["bmi", "age"]], progress=False)
