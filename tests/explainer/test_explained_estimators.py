"""Explanations of estimators and of callables that take data frames, against hand-computed interactions."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import refused
from explaining import explain_point, point_explainer
from fitted_classifiers import classifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import geh_explain as geh
from geh_explain.engines import Difference
from geh_explain.units import Subset

#: What an estimator or function was called with, outside of the model, which is restored after each explanation.
CALLS: list = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def table(rows=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, rows),
            "bmi": rng.normal(25, 4, rows).astype(np.float32),
            "visits": rng.integers(0, 9, rows),
            "member": rng.random(rows) < 0.4,
            "city": rng.choice(["Bonn", "Oslo", "Rome"], rows),
        }
    )


def by_city(frame):
    return frame["city"].map({"Bonn": 1.0, "Oslo": 3.0, "Rome": 7.0}).to_numpy()


def formula(frame):
    """Return 2 age bmi - 3 age visits + 5 visits member + age city, with cities as numbers."""
    CALLS.append(frame)
    age, bmi, visits = (frame[name].to_numpy(float) for name in ("age", "bmi", "visits"))
    return 2 * age * bmi - 3 * age * visits + 5 * visits * frame["member"].to_numpy() + age * by_city(frame)


class Estimator:
    """The formula behind ``predict``."""

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return formula(X)


FORMULA = {("age", "bmi"): 2.0, ("age", "visits"): 3.0, ("visits", "member"): 5.0}


def scores_of(result):
    return {(row.unit_i, row.unit_j): row.mean for row in result.table()[["unit_i", "unit_j", "mean"]].itertuples()}


def pipeline(frame):
    """Return a pipeline whose prediction is a sum of main effects and products, without error."""
    encode = make_column_transformer(
        (OneHotEncoder(), ["city"]), ("passthrough", ["age", "bmi", "visits", "member"]), sparse_threshold=0
    )
    products = PolynomialFeatures(2, interaction_only=True)
    return make_pipeline(encode, StandardScaler(), products, LinearRegression()).fit(frame, formula(frame))


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("model", [Estimator(), formula, Estimator().predict], ids=["estimator", "function", "method"])
def test_products_of_columns_have_their_coefficients_as_scores(model):
    result = explain_point(model, table())
    expected = dict.fromkeys(itertools.combinations(["age", "bmi", "visits", "member"], 2), 0.0) | FORMULA
    assert scores_of(result) == pytest.approx(expected, abs=1e-6)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_a_pipeline_with_text_has_the_scores_of_what_it_was_fitted_to_and_of_its_own_lambda():
    model = pipeline(table())
    result = explain_point(model, table())
    assert {pair: scores_of(result)[pair] for pair in FORMULA} == pytest.approx(FORMULA, rel=1e-6)
    own = explain_point(lambda frame: model.predict(frame), table())
    assert np.array_equal(result.geh.mean, own.geh.mean)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_every_call_has_a_frame_with_the_columns_and_dtypes_that_were_given():
    given = table()
    explain_point(Estimator(), given, groups=2)
    assert len(CALLS) > 3
    assert all(call.dtypes.equals(given.dtypes) for call in CALLS)
    # Whole numbers that were moved are among those that occur.
    assert set(np.concatenate([call["visits"] for call in CALLS])) <= set(range(9))


def test_a_function_of_tensors_is_given_tensors_and_keeps_its_derivatives():
    numbers = table()[["age", "bmi"]]
    result = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1], numbers)
    assert result.settings["engine"] == "structured"
    assert result.aeh.mean[0, 1] == pytest.approx(2 * numbers["age"].mean(), rel=1e-9)


def test_a_frame_in_single_precision_reaches_a_function_of_tensors_in_single_precision():
    linear = torch.nn.Linear(2, 1)
    result = explain_point(
        lambda x: torch.tanh(linear(x)), table()[["age", "bmi"]].astype(np.float32) / 50, engine="exact"
    )
    assert result.settings["dtype"] == "float32"


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_columns_of_text_stay_fixed_and_a_warning_says_so():
    with pytest.warns(geh.GEHWarning, match=r"\['city'\] are not numeric and stay as they are"):
        result = explain_point(Estimator(), table())
    assert "city" not in result.names


def test_columns_of_text_that_are_named_jump_between_their_values():
    """The mixed difference of age * city, over the next city in the order of the alphabet, the last one back."""
    given = table()[["age", "city"]]
    named = Subset(["age", "city"])
    result = explain_point(lambda f: f["age"] * by_city(f), given, units=named, engine="difference")
    slopes = given["city"].map({"Bonn": 3.0 - 1.0, "Oslo": 7.0 - 3.0, "Rome": 7.0 - 3.0})
    assert result.aeh.mean[0, 1] == pytest.approx(slopes.mean(), rel=1e-6)


@pytest.mark.parametrize("baseline", ["mean", 1.0])
def test_columns_of_text_have_no_baseline(baseline):
    with refused(ValueError, "baseline=", "unit 1", "not numeric"):
        explain_point(Estimator(), table(), units=Subset(["age", "city"]), engine=Difference(baseline=baseline))


def test_a_tree_of_two_steps_has_the_interaction_of_its_table():
    """On the four corners of a square, f = x0 and x1 has the mixed difference 1, the exclusive or -2."""
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=2)) * 5)
    for y, expected in ((corners.prod(axis=1), 1.0), (corners.sum(axis=1) == 1, -2.0)):
        tree = DecisionTreeRegressor(random_state=0).fit(corners, y)
        with pytest.warns(geh.GEHWarning, match="two values"):
            result = explain_point(tree, corners)
        assert result.regions(0, 1)["mean"].tolist() == [expected]


def test_a_forest_has_the_mixed_differences_of_its_predictions():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    forest = RandomForestRegressor(20, random_state=0).fit(X, X[:, 0] * X[:, 1] + X[:, 2])
    result = explain_point(forest, X)
    steps = np.where(X.mean(axis=0) < X, -1, 1) * 0.5 * X.std(axis=0)

    def moved(*units):
        at = X.copy()
        at[:, units] += steps[:, units]
        return forest.predict(at)

    mixed = (moved(0, 1) - moved(0) - moved(1) + forest.predict(X)) / (steps[:, 0] * steps[:, 1])
    assert result.regions(0, 1)["mean"].tolist() == pytest.approx([mixed.mean()], rel=1e-9)
    assert result.eah.mean[0, 1] == pytest.approx(np.abs(mixed).mean(), rel=1e-9)


def test_estimators_make_an_ensemble():
    X = np.random.default_rng(3).normal(size=(80, 2))
    members = [
        make_pipeline(PolynomialFeatures(2), LinearRegression()).fit(X, k * X[:, 0] * X[:, 1]) for k in (1.0, 2.0, 4.0)
    ]
    result = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members)).explain(
        X, groups=1, progress=False
    )
    assert result.geh.draws[:, 0].tolist() == pytest.approx([1.0, 2.0, 4.0], rel=1e-9)


def test_boosted_trees_of_another_package_work_by_their_methods():
    lightgbm = pytest.importorskip("lightgbm")
    frame = table()[["age", "bmi", "visits"]].astype(float)
    y = frame["age"] * frame["bmi"]
    for train in (frame, frame.to_numpy()):
        model = lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=5, verbose=-1).fit(train, y)
        result = explain_point(model, frame)
        assert result.names == ["age", "bmi", "visits"]
        by_hand = explain_point(lambda x, model=model: model.booster_.predict(x.numpy()), frame, engine="difference")
        assert result.geh.mean == pytest.approx(by_hand.geh.mean, rel=1e-9, abs=1e-12)


def test_a_missing_text_reaches_an_encoder_as_it_was_fitted():
    """OneHotEncoder takes None and NaN for different categories; unknown ones are all 0 here, without an error."""
    frame = table()[["age", "bmi"]].astype(float)
    frame["city"] = pd.Series(np.where(np.arange(len(frame)) % 2, "Bonn", None), dtype=object)
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    model = make_pipeline(encode, PolynomialFeatures(3, interaction_only=True), LinearRegression())
    known = frame["city"].notna()
    model.fit(frame, frame["age"] * frame["bmi"] * np.where(known, 1.0, 5.0))
    with pytest.warns(geh.GEHWarning, match="'city'"):
        result = explain_point(model, frame, groups=np.where(known, "known", "missing"))
    assert result.regions("age", "bmi")["mean"].to_dict() == pytest.approx({"known": 1.0, "missing": 5.0}, rel=1e-6)


def test_few_calls_before_the_first_draw_and_few_large_ones_in_it():
    X = table()[["age", "bmi"]].to_numpy(float)

    class Slow(Estimator):
        def predict(self, X):
            CALLS.append(len(X))
            return np.sin(X[:, 0] * X[:, 1])

    explain_point(Slow(), X)
    large = [rows for rows in CALLS if rows >= 200]
    assert large == [200, 3 * 200]
    assert CALLS.index(200) <= 4
    assert len(CALLS) - len(large) <= 8
    assert sum(CALLS) - sum(large) <= 100


@pytest.mark.parametrize("batch_size", [64, 150, 1000])
def test_a_batch_size_is_the_largest_number_of_rows_of_a_call(batch_size):
    X = table()[["age", "bmi"]].to_numpy(float)

    class Counted(Estimator):
        def predict(self, X):
            CALLS.append(len(X))
            return np.sin(X[:, 0] * X[:, 1])

    result = explain_point(Counted(), X, batch_size=batch_size)
    assert max(CALLS) <= batch_size
    assert np.allclose(result.geh.mean, explain_point(Counted(), X).geh.mean, rtol=1e-12)


def test_an_estimate_tells_calls_and_rows():
    X = table()[["age", "bmi"]].to_numpy(float)

    class Counted(Estimator):
        def predict(self, X):
            CALLS.append(len(X))
            return np.sin(X[:, 0] * X[:, 1])

    estimate = point_explainer(Counted()).estimate(X, groups=1)
    assert (estimate.calls, estimate.rows, estimate.draws) == (3, 200 * 4, 1)
    assert "3 calls of the model with 800 rows" in str(estimate)


@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize("batch_size", [None, 70])
def test_an_estimate_counts_the_levels_of_categories(rest, batch_size):
    """All points are set to 3 levels, 2 levels and 6 pairs of levels, and at each level 3 numbers take a step."""

    class Counted(Estimator):
        def predict(self, frame):
            CALLS.append(len(frame))
            return formula(frame) + by_city(frame) * frame["member"].to_numpy()

    frame = table()
    units = geh.units.Categorical({"city": "city", "member": "member"}, rest=rest)
    explainer = point_explainer(Counted(), units=units)
    estimate = explainer.estimate(frame, groups=1, batch_size=batch_size)
    # The engine takes the points as they are, a step of each unit, and of each pair of numbers.
    of_engine, of_levels = (1 + 5 + 3, 5 * (1 + 3) + 6) if rest else (1 + 2, 5 + 6)
    assert estimate.rows == 200 * (of_engine + of_levels)
    CALLS.clear()
    explainer.explain(frame, groups=1, batch_size=batch_size, progress=False)
    counts = [call for call in CALLS if isinstance(call, int)]
    assert 0 <= sum(counts) - estimate.rows < 200  # checks of a few rows
    assert 0 <= len(counts) - estimate.calls <= 12


def test_progress_is_reported_within_a_chunk():
    reported = []

    class Reporting(Difference):
        def start(self, cut, limits):
            run = super().start(cut, limits)
            whole = run.report
            run.report = lambda rows: (reported.append(rows), whole(rows))
            return run

    X = table()[["age", "bmi", "visits"]].to_numpy(float)
    explain_point(lambda x: x.prod(dim=1), X, engine=Reporting(), batch_size=50)
    assert len(reported) == 4 * 6
    assert sum(reported) == pytest.approx(200)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_a_saved_result_of_an_estimator_is_read_again(tmp_path):
    result = explain_point(Estimator(), table())
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    assert loaded.table().equals(result.table())
    assert loaded.settings["model"] == "Estimator"


def test_a_loader_has_the_names_of_the_fit():
    model, frame, _ = classifier()
    rows = torch.utils.data.TensorDataset(torch.tensor(frame.to_numpy()))
    result = explain_point(model, rows)
    assert result.names == ["a", "b", "c"]
    assert np.array_equal(result.geh.mean, explain_point(model, frame).geh.mean)


def test_a_function_of_columns_is_not_taken_for_one_of_rows():
    """With a tensor, ``f[0] * f[1]`` would multiply rows."""
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)))
    result = explain_point(lambda f: f[0] * f[1], numbers, engine="difference")
    assert result.geh.mean[0, 1] == pytest.approx(1.0)


@pytest.mark.parametrize("engine", ["exact", "stein", "structured"])
def test_a_function_of_frames_has_no_derivatives(engine):
    with refused(ValueError, f"engine='{engine}'", "data frame has none", "'difference'"):
        explain_point(lambda f: f["age"] * f["bmi"], table()[["age", "bmi"]], engine=engine)


def test_held_out_labels_are_tested_beside_columns_of_text():
    """The city's effect on the labels is accounted for, whatever the order of the names."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(600, 3)), columns=["a", "b", "c"])
    frame["city"] = rng.choice(["Bonn", "Oslo", "Rome", "Ulm"], 600)
    effect = frame["city"].map({"Bonn": 0.0, "Oslo": 9.0, "Rome": -9.0, "Ulm": 3.0})

    def model(f):
        return f["a"] * f["b"] + 0.3 * f["b"] * f["c"]

    y = frame["a"] * frame["b"] + effect + rng.normal(size=600)
    explainer = point_explainer(model, engine="difference")
    with pytest.warns(geh.GEHWarning, match="city"):
        result = explainer.explain(frame, groups=1, progress=False, evidence=(frame, y))
    significant = result.table()[result.table()["significant"]]
    assert significant[["unit_i", "unit_j"]].to_numpy().tolist() == [["a", "b"]]
    # The standard error is that of the noise, with a standard deviation of 1; the city's effect has one of 6.5.
    assert significant["slope_se"].item() < 2 / 600**0.5


def test_columns_of_text_that_are_no_units_are_said_to_be_columns():
    explainer, frame = point_explainer(Estimator()), table()
    options = {"groups": 1, "progress": False}
    for request in ({"unit": "city"}, {"pairs": [("age", "city")]}, {"rows": ["city"]}):
        with pytest.raises(
            geh.GEHError, match=rf"{next(iter(request))}: 'city' is a column.*Categorical\({{'city': 'city'}}"
        ):
            explainer.explain(frame, **request, **options)
    with pytest.raises(geh.GEHError, match="unit 'ctiy' is not among the names"):
        explainer.explain(frame, unit="ctiy", **options)


def test_the_error_of_a_function_of_frames_is_shown():
    """Not that of the second try, with a tensor."""
    frame = table()[["age", "bmi"]]
    with pytest.raises(geh.GEHError, match=r"a data frame with the columns \['age', 'bmi'\]: KeyError: 'weight'"):
        explain_point(lambda frame: frame["age"] * frame["weight"], frame)
    with pytest.raises(geh.GEHError, match=r"returned a list.*output=numpy.asarray.* numbers"):
        explain_point(lambda frame: list(frame["age"]), frame)
    with pytest.raises(geh.GEHError, match=r"shape \(\) for \d+ rows; its first dimension must be the rows"):
        explain_point(lambda frame: frame["age"].mean(), frame)


def test_an_estimator_needs_no_warning_that_rows_are_explained_by_differences():
    frame = table().drop(columns="city")
    explainer = point_explainer(lambda frame: (frame["age"] * frame["bmi"]).to_numpy())
    with pytest.warns(geh.GEHWarning, match="differences in place of derivatives"):
        explainer.explain_row(frame.iloc[:1], baseline=frame.iloc[1:2], progress=False)

    class Product(Estimator):
        def predict(self, frame):
            return (frame["age"] * frame["bmi"]).to_numpy()

    local = point_explainer(Product()).explain_row(frame.iloc[:1], baseline=frame.iloc[1:2], progress=False)
    assert local.warnings == ()
