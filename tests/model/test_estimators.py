"""Estimators as models: which function is explained, what it is called with, and which class."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import Net, cases, refused
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import geh_explain as geh
from geh_explain.model.estimators import EstimatorModel, find_estimator, model_name
from geh_explain.model.preserve import as_module


def frame(rows=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(rows, 3)), columns=["age", "bmi", "size"])


def labels(rows=40, names=("no", "yes")):
    return np.array(names)[np.arange(rows) % len(names)]


def fitted(estimator, names=("no", "yes")):
    return estimator.fit(frame(), labels(names=names))


class Recorded:
    """An estimator that keeps what it was called with outside of itself."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y):
        return self

    def predict(self, X):
        Recorded.seen.append(X)
        return np.asarray(X)[:, 0].astype(float)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (LinearRegression(), "predict"),
        (LogisticRegression(), "predict_proba"),
        (RidgeClassifier(), "decision_function"),
        (make_pipeline(StandardScaler(), LinearSVC(dual="auto")), "decision_function"),
        (Recorded(), "predict"),
    ],
)
def test_the_function_that_is_explained(estimator, method):
    model = as_module(estimator.fit(np.eye(2), [0, 1]))
    assert isinstance(model, EstimatorModel)
    assert model.method == method
    assert model_name(model) == type(estimator).__name__


@pytest.mark.parametrize(
    "estimator",
    [
        CalibratedClassifierCV(LinearSVC(dual="auto"), cv=2),
        GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_wrappers_have_the_functions_columns_and_classes_of_what_they_wrap(estimator):
    model = as_module(fitted(estimator))
    assert (model.method, model.classes) == ("predict_proba", ["no", "yes"])
    assert model.feature_names == ["age", "bmi", "size"]


def test_a_bound_method_chooses_another_function():
    estimator = fitted(LogisticRegression())
    model = as_module(estimator.decision_function)
    assert model.method == "decision_function"
    assert np.array_equal(model(frame()), estimator.decision_function(frame()))


def test_a_skorch_net_is_its_network():
    skorch = pytest.importorskip("skorch")
    net = skorch.NeuralNetRegressor(Net, max_epochs=1, verbose=0, train_split=None)
    net.fit(np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32))
    assert as_module(net) is net.module_


def unfitted_skorch_net():
    return pytest.importorskip("skorch").NeuralNetRegressor(Net)


def test_networks_and_functions_are_no_estimators():
    assert find_estimator(Net()) is None
    assert find_estimator(torch.sin) is None
    assert find_estimator(LinearRegression) is None


@cases(
    {
        "scikit-learn": (lambda: as_module(LinearRegression()), RuntimeError, "LinearRegression is not fitted", "fit("),
        "pipeline": (lambda: as_module(make_pipeline(StandardScaler(), LinearRegression())), RuntimeError, "Pipeline"),
        "search": (lambda: as_module(GridSearchCV(LogisticRegression(), {})), RuntimeError, "GridSearchCV is not"),
        "method": (lambda: as_module(LogisticRegression().predict_proba), RuntimeError, "not fitted"),
        "skorch": (lambda: as_module(unfitted_skorch_net()), RuntimeError, "NeuralNetRegressor", "fit("),
    }
)
def test_estimators_that_were_not_fitted_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_an_error_of_a_late_estimator_says_that_it_is_not_fitted():
    class Late(Recorded):
        def predict(self, X):
            return KNeighborsRegressor().predict(X)

    with refused(RuntimeError, "not fitted"):
        geh.GEHExplainer(Late()).explain(frame(), progress=False)


def test_a_classifier_without_numbers_is_refused():
    class Labels(Recorded):
        classes_ = np.array([0, 1])

    with refused(TypeError, "Labels predicts labels", "CalibratedClassifierCV"):
        as_module(Labels())


def test_labels_of_clusters_are_no_numbers():
    clusters = KMeans(2, n_init=1, random_state=0).fit(frame())
    with refused(TypeError, "no derivatives"):
        geh.GEHExplainer(clusters).explain(frame(), progress=False)


@pytest.mark.parametrize(
    ("names", "target", "index"),
    [
        (("no", "yes"), None, 1),
        (("no", "yes"), "no", 0),
        (("no", "yes"), 0, 0),
        (("a", "b", "c"), "c", 2),
        (("a", "b", "c"), np.str_("b"), 1),
        (("a", "b", "c"), -1, -1),
        ((5, 7, 9), 7, 1),
        ((5, 7, 9), 2, 2),
        ((False, True), True, 1),
        (("a", "b", "c"), ["c", "a"], [2, 0]),
    ],
)
def test_classes_are_found_by_label_or_index(names, target, index):
    model = as_module(fitted(RandomForestClassifier(2, random_state=0), names))
    assert model.target_index(target) == index


def test_a_number_that_may_be_a_label_or_an_index_is_a_label_and_a_warning_says_so():
    model = as_module(fitted(LogisticRegression(), (1, 2)))
    with pytest.warns(geh.GEHWarning, match="taken for the label 1 .* column 0"):
        assert model.target_index(1) == 0


@cases(
    {
        "unknown": (lambda model: model.target_index("cat"), ValueError, "target='cat'", "['bat', 'car', 'dog']"),
        "similar": (lambda model: model.target_index("cat"), ValueError, "did you mean", "'bat'", "'car'"),
    }
)
def test_unknown_classes_are_refused(call, kind, words):
    model = as_module(fitted(LogisticRegression(), ("bat", "car", "dog")))
    with refused(kind, *words):
        call(model)


def test_the_only_column_of_a_decision_function_is_that_of_the_second_class():
    model = as_module(fitted(RidgeClassifier()))
    assert (model.target_index(None), model.target_index("yes")) == (None, None)
    with refused(ValueError, "target='no'", "'yes'", "opposite sign"):
        model.target_index("no")


def test_held_out_labels_become_columns():
    model = as_module(fitted(LogisticRegression(), ("a", "b", "c")))
    assert model.class_indices(pd.Series(["c", "a", "b"])).tolist() == [2, 0, 1]
    assert model.class_indices(["c", "z"]) == ["c", "z"]


@pytest.mark.parametrize("kind", ["frame", "array", "tensor"])
def test_an_estimator_is_called_with_what_it_was_fitted_on(kind):
    """scikit-learn warns otherwise, and warnings are errors here."""
    given = {"frame": frame(), "array": frame().to_numpy(), "tensor": torch.tensor(frame().to_numpy())}[kind]
    y = frame()["age"] * frame()["bmi"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", geh.GEHWarning)
        for train in (frame(), frame().to_numpy()):
            model = KNeighborsRegressor(3).fit(train, y)
            result = geh.GEHExplainer(model).explain(given, groups=1, progress=False)
            named = isinstance(train, pd.DataFrame) or kind == "frame"
            assert result.names == (["age", "bmi", "size"] if named else ["x0", "x1", "x2"])


def given_columns(*columns):
    def explain():
        model = LinearRegression().fit(frame(), np.arange(40.0))
        renamed = frame().rename(columns={"size": "sise"}).assign(size=0.0)[list(columns)]
        geh.GEHExplainer(model).explain(renamed, progress=False)

    return explain


def given_width(train, width):
    def explain():
        model = LinearRegression().fit(train(), np.arange(40.0))
        geh.GEHExplainer(model).explain(np.zeros((4, width)), progress=False)

    return explain


@cases(
    {
        "missing": (given_columns("age", "bmi", "sise"), ValueError, "inputs", "'size'", "missing", "mean 'sise'"),
        "unknown": (given_columns("age", "bmi", "size", "sise"), ValueError, "['sise']", "feature_names_in_"),
        "order": (given_columns("bmi", "age", "size"), ValueError, "column 0 is 'bmi', and was 'age'", "same order"),
        "width": (given_width(frame, 2), ValueError, "2 columns", "LinearRegression was fitted on 3", "'age'"),
        "array": (given_width(lambda: frame().to_numpy(), 5), ValueError, "5 columns", "fitted on 3"),
    }
)
def test_other_columns_than_those_of_the_fit_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


@pytest.mark.parametrize("engine", ["exact", "structured", "stein", geh.engines.Stein()])
def test_engines_that_take_gradients_are_refused(engine):
    with refused(ValueError, "engine=", "LinearRegression has none", "Difference"):
        geh.GEHExplainer(LinearRegression().fit(np.eye(3), np.ones(3)), engine=engine)


def test_text_for_a_network_is_refused():
    with refused(TypeError, "['city']", "not numbers"):
        geh.GEHExplainer(Net()).explain(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0], "city": ["x", "y"]}))
