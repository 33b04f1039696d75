"""Names wherever an index of a unit goes, with similar ones for those that are misspelt."""

import numpy as np
import pandas as pd
import pytest
from expected_errors import Net, cases, refused
from explaining import explain_point, point_explainer, random_points

import geh_explain as geh
from geh_explain.engines import Difference
from geh_explain.units import FeatureGroups, Subset


def frame():
    return pd.DataFrame(random_points(60, 4).numpy(), columns=["age", "sex", "bmi", "size"])


def product(x):
    return x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3]


def explained(**options):
    return lambda: explain_point(product, frame(), **options)


def test_a_subset_by_names_is_that_by_indices():
    by_name = explain_point(product, frame(), units=Subset(["bmi", "age"]))
    by_index = explain_point(product, frame(), units=Subset([2, 0]))
    assert by_name.names == by_index.names == ["bmi", "age"]
    assert np.array_equal(by_name.geh.mean, by_index.geh.mean)
    assert by_name.settings["units"] == by_index.settings["units"]


def test_a_subset_of_groups_takes_their_names():
    groups = FeatureGroups({"first": ["age", "sex"], "second": ["bmi", "size"]}, rest=True)
    result = explain_point(product, frame(), units=Subset(["second", "first"], of=groups))
    assert result.names == ["second", "first"]
    assert result.geh.mean[0, 1] == pytest.approx(2.0)


def test_inputs_without_columns_have_names_too():
    assert explain_point(product, random_points(60, 4), units=Subset(["x2", "x0"])).names == ["x2", "x0"]


@pytest.mark.parametrize("names", [None, ["a", "s", "b", "z"]])
def test_discrete_units_by_names(names):
    """A unit with three levels jumps to the next one: the mixed difference of age^2 is not its derivative."""
    levels = frame().assign(sex=np.arange(60) % 3)

    def model(x):
        return x[:, 1] ** 2 * x[:, 0] + x.sum(dim=1)

    named = "sex" if names is None else "s"
    by_name, by_index = (
        explain_point(
            model, levels, engine=Difference(discrete=[unit]), names=names, pairs=[(0, 1)], units=Subset([0, 1, 2, 3])
        )
        for unit in (named, 1)
    )
    assert np.array_equal(by_name.geh.pair_mean, by_index.geh.pair_mean)
    # 0 -> 1 and 1 -> 2 and 2 -> 1 have the slopes 1, 3 and 3.
    assert by_name.geh.pair_mean.tolist() == pytest.approx([7 / 3])


@cases(
    {
        "subset": (explained(units=Subset(["agee"])), ValueError, "Subset", "'agee'", "did you mean 'age'?"),
        "discrete": (explained(engine=Difference(discrete=["sx"])), ValueError, "discrete", "mean 'sex'"),
        "out of range": (explained(engine=Difference(discrete=[4])), ValueError, "discrete", "4", "4 units"),
        "group": (explained(units=FeatureGroups({"g": ["bmy", "age"]})), ValueError, "'bmy'", "did you mean 'bmi'?"),
        "unit": (explained(unit="aeg"), ValueError, "'aeg'", "did you mean 'age'?"),
        "pairs": (explained(pairs=[("age", "bni")]), ValueError, "pairs", "did you mean 'bmi'?"),
        "rows": (explained(rows=["sise"]), ValueError, "rows", "did you mean 'size'?"),
        "surface": (
            lambda: point_explainer(product).surface(frame(), pair=("age", "bmy"), progress=False),
            *(ValueError, "'bmy'", "did you mean 'bmi'?"),
        ),
        "regions": (lambda: explained()().plot.regions("age", "bmy"), ValueError, "did you mean 'bmi'?"),
        "table": (lambda: explained()().table(unit="sise"), ValueError, "did you mean 'size'?"),
        "layer": (
            lambda: geh.GEHExplainer(Net(), "encoder", units=Subset(["encoder[1]"])).explain(
                random_points(9, 3).float(), progress=False
            ),
            *(ValueError, "by index"),
        ),
    }
)
def test_names_that_are_misspelt_are_answered_with_similar_ones(call, kind, words):
    with refused(kind, *words):
        call()
