"""Classifiers of scikit-learn are explained, tested and diagnosed by the labels of their classes."""

import numpy as np
import pytest
from expected_errors import refused
from explaining import explain_point, point_explainer
from fitted_classifiers import classifier

import geh_explain as geh


def test_a_classifier_is_explained_by_the_probability_of_its_second_class():
    model, frame, _ = classifier()
    results = [explain_point(model, frame, target) for target in (None, "well", 1, "ill")]
    by_hand = explain_point(lambda f: model.predict_proba(f)[:, 1], frame, engine="difference")
    effects = [result.regions("a", "b")["mean"].item() for result in results]
    assert effects[:3] == pytest.approx([by_hand.regions("a", "b")["mean"].item()] * 3, rel=1e-9)
    assert effects[3] == pytest.approx(-effects[0], rel=1e-6)
    assert results[0].settings["output"] == "probability"
    assert [result.settings["target"] for result in results] == ["well", "well", 1, "ill"]


def test_one_class_per_row():
    model, frame, y = classifier(("high", "low", "mid"))
    by_hand = explain_point(
        lambda f: model.predict_proba(f), frame, np.searchsorted(model.classes_, y), engine="difference"
    )
    assert np.array_equal(explain_point(model, frame, list(y)).geh.mean, by_hand.geh.mean)


def test_held_out_labels_of_a_classifier_are_its_own():
    model, frame, y = classifier(("high", "low", "mid"))
    evidence = [
        geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        .explain(frame, "low", groups=1, progress=False, evidence=(frame, labels))
        .evidence
        for labels in (y, np.searchsorted(model.classes_, y))
    ]
    assert evidence[0].link == "identity"
    assert np.array_equal(evidence[0].p_value, evidence[1].p_value)


def test_bound_methods_choose_the_log_odds():
    model, frame, _ = classifier()
    result = explain_point(model.decision_function, frame)
    coefficients = dict(zip(model[0].get_feature_names_out(), model[1].coef_[0], strict=True))
    assert result.regions("a", "b")["mean"].item() == pytest.approx(coefficients["a b"], rel=1e-9)


def test_a_callable_output_of_a_classifier_chooses_its_own_column():
    model, frame, _ = classifier()
    result = explain_point(model, frame, output=lambda p: 3 * p[:, 1])
    assert result.geh.mean == pytest.approx(3 * explain_point(model, frame).geh.mean, rel=1e-9)


def test_the_draws_of_a_classifier_are_diagnosed_by_its_labels():
    model, frame, y = classifier()
    diagnosis = point_explainer(model).diagnose(frame, y=y, draws=1, progress=False)
    likelihood = model.predict_proba(frame)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    assert diagnosis.errors[0] == pytest.approx(-np.log(likelihood).mean())


def test_the_class_of_a_result_is_that_of_later_calls():
    model, frame, _ = classifier(("high", "low", "mid"))
    explainer = point_explainer(model)
    result = explainer.explain(frame, "low", groups=1, progress=False)
    surfaces = [
        explainer.surface(frame, target, pair=("a", "b"), result=result, grid=4, progress=False).values
        for target in (None, "low", 1)
    ]
    expected = explainer.surface(frame, "low", pair=("a", "b"), grid=4, progress=False).values
    assert all(np.array_equal(values, expected) for values in surfaces)


def test_all_classes_are_explained_by_their_labels():
    model, frame, _ = classifier(("high", "low", "mid"))
    explainer = point_explainer(model)
    results = explainer.explain(frame, "all", groups=1, progress=False)
    assert list(results) == ["high", "low", "mid"]
    some = explainer.explain(frame, targets=["mid"], groups=1, progress=False)
    assert np.array_equal(some["mid"].geh.mean, explain_point(model, frame, "mid").geh.mean)
    assert np.allclose(results["mid"].geh.mean, some["mid"].geh.mean)
    with refused(ValueError, "target=None", "3 outputs"):
        explainer.explain(frame, progress=False)


def test_classes_whose_numbers_are_not_their_columns_are_explained_one_at_a_time():
    model, frame, _ = classifier((1, 2, 3))
    with refused(ValueError, "numbers", "others than their columns", "target=1"):
        point_explainer(model).explain(frame, "all", progress=False)
