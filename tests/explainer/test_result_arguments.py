"""What a result knows is not asked again: its target, names and scale."""

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import cases, refused
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.run.record import RunRecord
from geh_explain.run.recorded_arguments import has_target_per_row, stored_scale, stored_target


def two_outputs(x):
    """Return x0 x1 in the first column and x1 x2 in the second one, with main effects."""
    return torch.stack([x[:, 0] * x[:, 1] + x[:, 2], x[:, 1] * x[:, 2] + x[:, 0]], dim=1)


def by_position(x):
    return two_outputs(x)[:, None].repeat(1, 3, 1)


@pytest.fixture(params=["kept", "loaded"])
def again(request, tmp_path):
    """Return a result as it is, or as read from a file."""
    if request.param == "kept":
        return lambda result: result
    return lambda result: geh.Interactions.load(result.save(tmp_path / "result.npz"))


@pytest.mark.parametrize(("model", "target"), [(two_outputs, 1), (two_outputs, np.int64(1)), (by_position, (2, 1))])
def test_the_target_of_a_result_is_that_of_later_calls(again, model, target):
    x, explainer = random_points(80, 3), point_explainer(model)
    result = again(explainer.explain(x, target, groups=1, names=["a", "b", "c"], progress=False))
    surface = explainer.surface(x, pair=("b", "c"), result=result, grid=5, progress=False)
    assert surface.names == ("b", "c")
    expected = explainer.surface(x, target, pair=(1, 2), grid=5, progress=False)
    assert np.array_equal(surface.values, expected.values)
    check = explainer.check(result, x, pairs=3, progress=False)
    given = explainer.check(result, x, target, pairs=3, progress=False)
    assert check.table().equals(given.table())
    assert check.table().iloc[0][["unit_i", "unit_j"]].tolist() == ["b", "c"]


def test_stability_takes_target_and_scale(again):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)).double()
    x, explainer = random_points(60, 3) * torch.tensor([1.0, 10.0, 0.1]).double(), point_explainer(net)
    result = again(explainer.explain(x, 1, groups=1, scale=[1.0, 2.0, 3.0], progress=False))
    table = explainer.stability(result, x, pairs=3, progress=False)
    assert table["score"].tolist() == pytest.approx(result.table()["mean"].tolist(), rel=1e-6)


def test_diagnosis_takes_the_target():
    x, explainer = random_points(40, 3), point_explainer(two_outputs)
    result = explainer.explain(x, 1, groups=1, progress=False)
    y = two_outputs(x)[:, 1]
    assert explainer.diagnose(x, y=y, result=result, draws=1, progress=False).errors[0] == pytest.approx(0, abs=1e-12)


def test_a_given_target_wins_with_a_warning():
    x, explainer = random_points(60, 3), point_explainer(two_outputs)
    result = explainer.explain(x, 1, groups=1, progress=False)
    with pytest.warns(geh.GEHWarning, match="target=0 is used, and result is about target=1"):
        surface = explainer.surface(x, 0, pair=(0, 1), result=result, grid=5, progress=False)
    assert np.array_equal(surface.values, explainer.surface(x, 0, pair=(0, 1), grid=5, progress=False).values)


def test_targets_of_rows_must_be_given_again(again):
    x, explainer = random_points(40, 3), point_explainer(two_outputs)
    target = [0, 1] * 20
    result = again(explainer.explain(x, target, groups=1, progress=False))
    with refused(TypeError, "one target per row", "not stored", "target="):
        explainer.check(result, x, progress=False)
    assert len(explainer.check(result, x, target, pairs=3, progress=False).table()) == 3


def test_a_tuple_with_as_many_entries_as_there_are_rows_is_no_target_of_rows():
    x, explainer = random_points(2, 3), point_explainer(by_position)
    result = explainer.explain(x, (2, 1), groups=1, progress=False)
    assert stored_target(result.record) == (2, 1)


@pytest.mark.parametrize(
    ("record", "per_row"),
    [
        (RunRecord(target=None, points=3), False),
        (RunRecord(target=2, points=3), False),
        (RunRecord(target=[0, 1, 1], points=3), True),
        (RunRecord(target=[0, 1], points=3), False),
        (RunRecord(target="2000 values", points=2000), True),
        (RunRecord(target="yes", points=3, target_per_row=False), False),
    ],
)
def test_files_of_earlier_versions_show_it_by_the_length(record, per_row):
    assert has_target_per_row(record) == per_row


def test_numbers_of_a_scale_that_were_not_stored_are_missed():
    with refused(ValueError, "scale='2000 values'", "explain again"):
        stored_scale(RunRecord(scale="2000 values"))


def other_columns(method):
    def call():
        x = pd.DataFrame(random_points(40, 3).numpy(), columns=["a", "b", "c"])
        explainer = point_explainer(two_outputs)
        result = explainer.explain(x, 1, groups=1, progress=False)
        method(explainer, result, x[["b", "a", "c"]])

    return call


@cases(
    {
        "check": (other_columns(lambda e, r, x: e.check(r, x)), ValueError, "column 0 is 'b', and 'a' in the result"),
        "stability": (other_columns(lambda e, r, x: e.stability(r, x)), ValueError, "column 0", "same order"),
        "share": (other_columns(lambda e, r, x: e.share(r, x)), ValueError, "column 0", "same order"),
        "triples": (other_columns(lambda e, r, x: e.triples(r, x)), ValueError, "column 0", "same order"),
        "surface": (other_columns(lambda e, r, x: e.surface(x, pair=("a", "b"), result=r)), ValueError, "column 0"),
        "units": (
            other_columns(lambda e, r, x: point_explainer(two_outputs, units=geh.units.Subset([2, 1, 0])).check(r, x)),
            *(ValueError, "units=Neurons()", "Subset"),
        ),
        "units of triples": (
            other_columns(
                lambda e, r, x: point_explainer(two_outputs, units=geh.units.Subset([2, 1, 0])).triples(r, x)
            ),
            *(ValueError, "units=Neurons()", "Subset"),
        ),
    }
)
def test_other_columns_or_units_than_those_of_the_result_are_refused(call, kind, words):
    with refused(kind, *words):
        call()
