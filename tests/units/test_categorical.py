"""Categories as units: which levels a category has, how it is declared and recognised, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import Applied, cases, refused
from explaining import explain_point, point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.units import Categorical, FeatureGroups, Subset

ROWS = 60


def codes(levels, rows=ROWS):
    return torch.arange(rows) % levels


def one_hot(levels, rows=ROWS):
    return torch.eye(levels, dtype=torch.double)[codes(levels, rows)]


def table(*blocks, rows=ROWS, numeric=2):
    """Return columns of categories, then standard normal ones."""
    return torch.cat([*blocks, random_points(rows, numeric)], dim=1)


def smooth(x):
    return (x.cumsum(1) ** 2).sum(1)


def levels_of(units, x, model=smooth, **options):
    """Return the names of the levels of the first unit, in order."""
    result = explain_point(model, x, units=units, **options)
    return list(result.level_draws.contrasts.levels[0].names), result


def test_one_hot_columns_are_one_unit_and_other_columns_are_numeric_units():
    frame = pd.DataFrame(table(one_hot(3)).numpy(), columns=["place_SEA", "place_HILL", "place_TOWN", "age", "size"])
    names, result = levels_of(Categorical({"place": ["place_SEA", "place_HILL", "place_TOWN"]}), frame)
    assert result.names == ["place", "age", "size"]
    assert names == ["SEA", "HILL", "TOWN"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["ocean_NEAR BAY", "ocean_NEAR OCEAN"], ["NEAR BAY", "NEAR OCEAN"]),
        (["ocean_proximity_NEAR", "ocean_proximity_NEVER"], ["NEAR", "NEVER"]),
        (["ocean=a", "ocean=b"], ["a", "b"]),
        (["near", "never"], ["near", "never"]),
        (["p_", "p_a"], ["p_", "p_a"]),
    ],
)
def test_names_of_levels_are_those_of_the_columns_without_their_common_prefix(columns, expected):
    frame = pd.DataFrame(table(one_hot(2)).numpy(), columns=[*columns, "age", "size"])
    assert levels_of(Categorical({"ocean": columns}), frame)[0] == expected


def test_rows_without_a_one_are_a_level_of_their_own():
    names, result = levels_of(Categorical({"c": [0, 1]}), table(one_hot(3)[:, 1:]))
    assert names == ["(none)", "x0", "x1"]
    full = explain_point(lambda x: smooth(x[:, 1:]), table(one_hot(3)), units=Categorical({"c": [0, 1, 2]}))
    np.testing.assert_allclose(result.geh.mean, full.geh.mean)


def test_standardised_one_hot_columns_have_the_same_levels():
    block = one_hot(3)
    mean, std = block.mean(0), block.std(0)
    plain = explain_point(smooth, table(block), units=Categorical({"c": [0, 1, 2]}), scale="std")
    names, scaled = levels_of(
        Categorical({"c": [0, 1, 2]}),
        table((block - mean) / std),
        lambda x: smooth(torch.cat([x[:, :3] * std + mean, x[:, 3:]], dim=1)),
        scale="std",
    )
    assert names == ["x0", "x1", "x2"]
    np.testing.assert_allclose(scaled.geh.mean, plain.geh.mean, atol=1e-9)


def test_levels_that_do_not_occur_are_left_out_with_a_warning():
    block = torch.cat([one_hot(2), torch.zeros(ROWS, 1, dtype=torch.double)], dim=1)
    with pytest.warns(geh.GEHWarning, match="the levels 'x2' of category 'c' occur at no point"):
        names, _ = levels_of(Categorical({"c": [0, 1, 2]}), table(block))
    assert names == ["x0", "x1"]


def test_a_column_of_codes_gives_the_scores_and_groups_of_its_one_hot_columns():
    plain = explain_point(smooth, table(one_hot(4)), units=Categorical({"c": [0, 1, 2, 3]}), groups=4)
    coded = explain_point(
        lambda x: smooth(torch.cat([torch.eye(4).to(x)[x[:, 0].long()], x[:, 1:]], dim=1)),
        table(codes(4)[:, None]),
        units=Categorical({"c": 0}),
        groups=4,
    )
    assert (plain.labels == coded.labels).all()
    np.testing.assert_allclose(coded.geh.mean, plain.geh.mean)
    np.testing.assert_allclose(coded.signed, plain.signed)


def test_names_of_codes_are_their_values_and_those_of_pandas_their_categories():
    x = table(codes(3)[:, None] + 0.5)
    assert levels_of(Categorical({"c": [0]}), x)[0] == ["0.5", "1.5", "2.5"]
    frame = pd.DataFrame({"age": np.linspace(0, 1, ROWS), "c": pd.Categorical(["b", "a", "c"] * (ROWS // 3))})
    units = Categorical.detect(frame)
    names, result = levels_of(units, frame, Applied(smooth))
    assert (repr(units), names, result.names) == ("Categorical({'c': ['c']})", ["a", "b", "c"], ["c", "age"])
    assert frame["c"].dtype == "category"


def test_the_most_frequent_levels_are_taken_and_a_warning_says_how_much_of_the_data_they_hold():
    x = table(torch.cat([torch.zeros(30), torch.ones(20), torch.arange(10) + 2.0])[:, None])
    with pytest.warns(geh.GEHWarning, match=r"category 'c' has 12 levels.* 2 most frequent ones.* 83% of the points"):
        names, result = levels_of(Categorical({"c": 0}, max_levels=2), x, scale="std")
    assert names == ["0", "1"]
    # The standard deviation is that of all levels.
    shares = np.array([30, 20, *[1] * 10]) / 60
    unscaled = explain_point(smooth, x[:50], units=Categorical({"c": 0}))
    slope = unscaled.geh.mean[0, 1] * np.sqrt((1 - (shares**2).sum()) / 2)
    assert result.geh.mean[0, 1] == pytest.approx(slope * x[:, 1].std(correction=0))


def test_inputs_in_a_dict_are_named_and_ids_may_have_one_dimension():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(3, 2).double()

        def forward(self, x, ids):
            return (x * self.embedding(ids)).sum(1) ** 2

    inputs = {"x": random_points(ROWS, 2), "ids": codes(3)}
    by_name = explain_point(Net(), inputs, units=Categorical({"city": "ids"}))
    assert by_name.names == ["city", "x0", "x1"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a_x": [1, 0, 0, 0], "a_y": [0, 1, 0, 0], "n": [1.5, 2, 3, 4]}, {"a": ["a_x", "a_y"]}),
        ({"a_x_y": [1, 0, 0, 1], "a_x_z": [0, 1, 0, 0], "a_w": [0, 0, 1, 0]}, {"a": ["a_x_y", "a_x_z", "a_w"]}),
        ({"is_a": [1, 1, 0, 0], "is_b": [1, 0, 1, 0]}, {"is_a": ["is_a"], "is_b": ["is_b"]}),
        ({"flag": [True, False, True, True], "one": [1, 1, 1, 1], "n": [0, 1, 2, 0]}, {"flag": ["flag"]}),
        ({"n": [0.1, 0.2, 0.3, 0.4]}, None),
        ({"city": ["Rome", "Oslo"] * 2, "name": ["Ada", "Bo", "Cy", "Di"], "gap": ["a", None] * 2}, {"city": ["city"]}),
    ],
)
def test_categories_of_a_frame_are_recognised(columns, expected):
    found = Categorical.detect(pd.DataFrame(columns))
    assert (None if found is None else found.categories) == expected


def test_units_that_get_dummies_made_are_recognised():
    frame = pd.DataFrame({"sea": ["near", "far", "on"] * 20, "age": np.linspace(0, 1, ROWS)})
    dummies = pd.get_dummies(frame, columns=["sea"])
    assert Categorical.detect(dummies).categories == {"sea": ["sea_far", "sea_near", "sea_on"]}


def test_text_in_no_category_stays_fixed_with_a_warning_unless_rest_is_false():
    """The slope of age is 2 in Oslo; the city is in no category."""
    frame = pd.DataFrame({"kind": pd.Categorical(["a", "b"] * 30), "age": np.linspace(0, 1, ROWS)})
    frame["city"] = np.array(["Oslo", "Rome", "Bonn"])[codes(3)]

    def model(frame):
        return (frame["age"] * (frame["kind"] == "a") * (frame["city"] == "Oslo")).to_numpy(dtype=float)

    units = Categorical({"kind": "kind"})
    with pytest.warns(
        geh.GEHWarning, match=r"'city'\] are not numeric and stay as they are.*takes them as categories\.$"
    ):
        result = explain_point(model, frame, units=units, engine="difference")
    assert result.geh.mean[0, 1] == pytest.approx(1 / 3)
    both = explain_point(
        model, frame, units=Categorical({"kind": "kind", "city": "city"}, rest=False), engine="difference"
    )
    assert both.names == ["kind", "city"]


def test_other_columns_stay_fixed_without_rest():
    def model(x):
        return (1 + x[:, 5]) * x[:, 0] * x[:, 3] + x[:, 5] * x[:, 6]

    x = table(one_hot(3), one_hot(2))
    result = explain_point(model, x, units=Categorical({"c": [0, 1, 2], "d": [3, 4]}, rest=False))
    assert result.names == ["c", "d"]
    assert result.geh.mean[0, 1] == pytest.approx(2 / 3 * (1 + x[:, 5].mean()).item())


def test_categories_that_do_not_act_together_have_scores_of_0_and_a_warning():
    ids = torch.stack([codes(3), codes(4) // 2], dim=1)
    net = nn.Sequential(nn.Embedding(3, 4), nn.Flatten(), nn.Linear(8, 1))
    with pytest.warns(geh.GEHWarning, match="the only pair is exactly 0.*additive"):
        result = explain_point(net, ids, units=Categorical({"a": 0, "b": 1}))
    assert result.eah.mean[0, 1] == 0
    assert not result.table()["stable"].any()


def test_outputs_that_are_not_finite_at_other_levels_are_explained():
    x = torch.cat([torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).repeat(10, 1), random_points(30, 1)], dim=1)

    def model(x):
        return torch.where((x[:, 0] == 1) & (x[:, 1] == 1), torch.nan, x[:, 0] * x[:, 2])

    with refused(RuntimeError, "rows set to other levels", "pairs="):
        explain_point(model, x, units=Categorical({"a": 0, "b": 1}))


def with_categories(categories, inputs=lambda: table(one_hot(3))):
    return lambda: explain_point(Applied(smooth), inputs(), units=Categorical(categories))


def frame(**columns):
    return pd.DataFrame(
        {"ocean_A": [0.0, 1.0] * 30, "ocean_B": [1.0, 0.0] * 30, "age": np.linspace(0, 1, 60)} | columns
    )


@cases(
    {
        "no mapping": (lambda: Categorical([0, 1]), TypeError, "Categorical", "[0, 1]", "mapping"),
        "nothing": (lambda: Categorical({}), TypeError, "Categorical", "{}", "mapping"),
        "no columns": (lambda: Categorical({"c": []}), ValueError, "'c'", "no columns"),
        "wrong columns": (lambda: Categorical({"c": 1.5}), TypeError, "'c'", "1.5"),
        "one level at most": (lambda: Categorical({"c": 0}, max_levels=1), ValueError, "max_levels", "2"),
        "rest": (lambda: Categorical({"c": 0}, rest=["a"]), TypeError, "rest", "True or False"),
        "unknown column": (
            with_categories({"ocean": ["ocean_A", "ocaen_B"]}, frame),
            *(ValueError, "'ocean'", "'ocaen_B'", "did you mean 'ocean_B'"),
        ),
        "name without names": (with_categories({"c": "ocean"}), ValueError, "'ocean'", "no column names"),
        "out of range": (with_categories({"c": [0, 9]}), ValueError, "9", "5 columns", "0 to 4"),
        "boolean column": (with_categories({"c": [True, False]}), TypeError, "True", "indices"),
        "overlap": (with_categories({"c": [0, 1], "d": [1, 2]}), ValueError, "column 1", "'c' and 'd'"),
        "twice": (with_categories({"c": [0, 0]}), ValueError, "column 0", "once"),
        "two ones": (
            with_categories({"c": [0, 1]}, lambda: table(torch.ones(ROWS, 2), one_hot(2))),
            *(ValueError, "'x0' and 'x1' are both 1", "category of its own"),
        ),
        "three values": (
            with_categories({"c": [0, 1, 2]}, lambda: table(one_hot(3) * (codes(2)[:, None] + 1))),
            *(ValueError, "the values 0, 1, 2", "'x0'", "one-hot"),
        ),
        "numbers": (with_categories({"c": [3, 4]}), ValueError, "'x3'", "one-hot"),
        "one level": (
            with_categories({"c": [0, 1]}, lambda: table(torch.zeros(ROWS, 2))),
            *(ValueError, "'c'", "one level", "(none)", "60 points"),
        ),
        "one code": (
            with_categories({"c": 0}, lambda: table(torch.ones(ROWS, 1))),
            *(ValueError, "'c'", "one level", "'1'"),
        ),
        "a number as code": (
            with_categories({"c": 0}, lambda: random_points(10_001, 2)),
            *(ValueError, "'c'", "10,000", "different values", "numeric unit"),
        ),
        "ids in no category": (
            with_categories({"c": 1}, lambda: (random_points(ROWS, 1), codes(3)[:, None], codes(2)[:, None])),
            *(TypeError, "[2]", "torch.int64", "no derivatives", "rest=False"),
        ),
        "across tensors": (
            with_categories({"c": [0, 1]}, lambda: (one_hot(2)[:, :1], one_hot(2)[:, 1:])),
            *(ValueError, "'c'", "several input tensors"),
        ),
        "missing values": (
            with_categories({"c": "c"}, lambda: frame(c=pd.Categorical([None, "a", "b"] * 20))),
            *(ValueError, "20 values", "'c'", "missing"),
        ),
        "a hidden layer": (
            lambda: explain_point(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), one_hot(3).float(), layer="0",
                                  units=Categorical({"c": [0, 1]})),
            *(ValueError, "hidden layer", "layer=None"),
        ),
        "a part of them": (
            lambda: explain_point(smooth, table(one_hot(3)), units=Subset([0, 1], of=Categorical({"c": [0, 1, 2]}))),
            *(ValueError, "Subset", "unit="),
        ),
        "searched rows": (
            lambda: explain_point(smooth, table(one_hot(3)), units=Categorical({"c": [0, 1, 2]}), rows="auto"),
            *(ValueError, "rows='auto'", "rows=["),
        ),
        "a category that is called discrete": (
            lambda: explain_point(smooth, table(one_hot(3)), units=Categorical({"c": [0, 1, 2]}),
                                  engine=geh.engines.Difference(discrete=["c"])),
            *(ValueError, "discrete", "'c'", "a category", "leave it out"),
        ),
        "detect without a frame": (lambda: Categorical.detect(one_hot(3)), TypeError, "Tensor", "DataFrame"),
    }
)  # fmt: skip
def test_wrong_categories_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_an_account_of_one_prediction_switches_categories():
    """2 [c = a and d = x] + 0.3 u v, from (b, y, 0, 0) to (a, x, 2, 5): neither c nor d alone does anything."""

    def model(x):
        return 2 * x[:, 0] * x[:, 3] + 0.3 * x[:, 5] * x[:, 6]

    explainer = point_explainer(model, units=Categorical({"c": [0, 1, 2], "d": [3, 4]}))
    row, baseline = torch.tensor([[1.0, 0, 0, 1, 0, 2, 5], [0.0, 1, 0, 0, 1, 0, 0]]).double()
    local = explainer.explain_row(row, baseline=baseline, progress=False)
    pairs = {(pair.unit_i, pair.unit_j): pair.mean for pair in local.pairs.itertuples()}
    assert pairs["c", "d"] == pytest.approx(2)
    assert pairs["x5", "x6"] == pytest.approx(3)
    np.testing.assert_allclose(local.main["mean"], 0, atol=1e-12)
    with refused(ValueError, "baseline", "no level of a category", "give a row"):
        explainer.explain_row(row, data=torch.stack([row, baseline]), progress=False)


def test_rows_of_an_account_that_have_no_level_are_refused():
    explainer = point_explainer(Applied(smooth), units=Categorical({"c": [0, 1, 2]}))
    level, both = torch.tensor([[1.0, 0, 0, 5], [1.0, 0, 1, 5]]).double()
    with refused(ValueError, "x_row", "several ones", "'c'"):
        explainer.explain_row(both, baseline=level, progress=False)
    with refused(ValueError, "baseline", "several ones", "'c'"):
        explainer.explain_row(level, baseline=both, progress=False)
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b"] * 3), "age": np.linspace(0, 1, 6)})
    explainer = point_explainer(Applied(smooth), units=Categorical.detect(frame))
    row = frame.iloc[[1]].assign(c=frame["c"].iloc[[1]].cat.remove_unused_categories())
    with refused(ValueError, "baseline", "'c'", "['a', 'b']", "['b']", "set_categories"):
        explainer.explain_row(row, baseline=frame.iloc[[0]], progress=False)
    assert explainer.explain_row(frame.iloc[[1]], baseline=frame.iloc[[0]], progress=False).pairs["mean"].iloc[0] != 0


@pytest.mark.parametrize("with_batch", [True, False])
def test_an_account_of_one_prediction_switches_ids(with_batch):
    """x0 e(id) with e(0) = 1 and e(1) = 4, from (2, 0) to (5, 1): 2 to 20, of which the pair has (5 - 2) (4 - 1)."""
    levels = torch.tensor([1.0, 4.0]).double()
    explainer = point_explainer(lambda x, ids: x[:, 0] * levels[ids], units=Categorical({"id": 1}))
    x, ids = torch.tensor([[2.0], [5.0]]).double(), torch.tensor([0, 1])
    first, second = (slice(0, 1), slice(1, 2)) if with_batch else (0, 1)
    local = explainer.explain_row((x[second], ids[second]), baseline=(x[first], ids[first]), progress=False)
    assert (local.reference, local.prediction) == (2, 20)
    assert local.main.set_index("unit")["mean"].to_dict() == {"x0": 3, "id": 6}
    assert local.pairs["mean"].tolist() == [9]


def test_analyses_and_tests_that_take_no_categories_say_so():
    x, y = table(one_hot(3)), random_points(ROWS)
    explainer = point_explainer(smooth, units=Categorical({"c": [0, 1, 2]}))
    result = explainer.explain(x, groups=1, progress=False)
    for call in (
        lambda: explainer.explain(x, evidence=(x, y), progress=False),
        lambda: explainer.test(result, x, y, progress=False),
        lambda: explainer.test_pairs(x, y, progress=False),
        lambda: explainer.screen(x, progress=False),
        lambda: result.triples(progress=False),
    ):
        with refused(ValueError, "Categorical", "does not take"):
            call()


def test_columns_of_0_and_1_that_are_differentiated_are_named_in_one_warning():
    x = table(one_hot(3))
    with pytest.warns(geh.GEHWarning) as caught:
        explain_point(smooth, x)
    assert len(caught) == 1
    assert "x0, x1, x2 hold 0 and 1 only" in str(caught[0].message)
    named = pd.DataFrame({"age": np.linspace(0, 1, ROWS), "member": [True, False] * 30})
    with pytest.warns(geh.GEHWarning, match=r"column member holds.*Categorical\.detect\(frame\)"):
        explain_point(smooth, named)
    with pytest.warns(geh.GEHWarning, match="column x3 holds"):
        explain_point(smooth, table(one_hot(3), codes(2)[:, None]), units=Categorical({"c": [0, 1, 2]}))


@pytest.mark.filterwarnings("error")
def test_that_warning_is_quiet_where_levels_are_taken_and_for_images():
    x = table(one_hot(3))
    explain_point(smooth, x, units=Categorical({"c": [0, 1, 2]}))
    explain_point(smooth, x, units=FeatureGroups({"c": [0, 1, 2], "n": [3, 4]}))
    explain_point(smooth, x, engine=geh.engines.Difference(discrete=[0, 1, 2]))
    pixels = (random_points(8, 100) > 0).double()
    explain_point(lambda x: x[:, :5].prod(1) + smooth(x), pixels)
    explain_point(lambda x: smooth(x.flatten(1)), pixels.reshape(8, 10, 10), unit=0)


def test_text_with_few_values_is_a_category() -> None:
    frame = pd.DataFrame(
        {
            "city": ["Bonn", "Oslo", None] * 10,
            "remark": [f"remark {row}" for row in range(30)],
            "country": ["NO"] * 30,
            "mixed": ["a", 1, 2.0] * 10,
            "age": np.arange(30.0),
        }
    )
    units = Categorical.detect(frame)
    assert units is not None
    assert units.categories == {"city": ["city"]}
