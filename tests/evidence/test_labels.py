"""Held-out labels: what is read as numbers, as classes, and as one of several labels."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.errors import GEHValueError, GEHWarning


def logits(x):
    """Return three outputs; the first one has the interaction x0 x x1."""
    return torch.stack([2 * x[:, 0] * x[:, 1] + x[:, 2], -x[:, 2], 0.5 * x[:, 0]], 1)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=generator)
    classes = torch.multinomial(torch.softmax(logits(x), 1), 1, generator=generator)[:, 0]
    several = torch.rand(600, 3, generator=generator) < torch.sigmoid(logits(x))
    return x, classes, several


EXPLAINER = geh.GEHExplainer(logits, posterior=geh.posterior.PointEstimate())


def test_one_hot_labels_of_any_dtype_are_class_indices(rows):
    x, classes, _ = rows
    expected = EXPLAINER.test_pairs(x, classes, 0, progress=False)
    assert expected.link == "logit"
    assert expected.p_value[0] < 1e-6
    one_hot = torch.nn.functional.one_hot(classes, 3)
    for labels in (one_hot, one_hot.bool(), one_hot.float(), one_hot.numpy().tolist()):
        found = EXPLAINER.test_pairs(x, labels, 0, progress=False)
        np.testing.assert_array_equal(found.p_value, expected.p_value)


def test_several_labels_are_log_odds_of_their_own(rows):
    x, _, several = rows
    alone = geh.GEHExplainer(lambda x: logits(x)[:, 0], posterior=geh.posterior.PointEstimate())
    expected = alone.test_pairs(x, several[:, 0].int(), progress=False)
    for labels in (several, several.int(), several.float()):
        found = EXPLAINER.test_pairs(x, labels, 0, progress=False)
        assert found.link == "logit"
        np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3, atol=1e-6)


def test_numbers_in_columns_are_a_regression(rows):
    x, _, _ = rows
    y = logits(x) + torch.randn(600, 3, generator=torch.Generator().manual_seed(1))
    found = EXPLAINER.test_pairs(x, y, 0, progress=False)
    assert found.link == "identity"
    assert 0.8 < found.slope[0] < 1.2


def test_class_indices_as_floats_and_booleans_are_refused(rows):
    x, classes, several = rows
    with pytest.raises(GEHValueError, match="whole numbers 0 to 2 as floats"):
        EXPLAINER.test_pairs(x, classes.float(), 0, progress=False)
    assert EXPLAINER.test_pairs(x, classes.float(), 0, link="identity", progress=False).link == "identity"
    with pytest.raises(TypeError, match="one column of 0 and 1 per output"):
        EXPLAINER.test_pairs(x, several[:, 0], 0, progress=False)


def test_one_column_of_several_labels_warns(rows):
    x, _, several = rows
    with pytest.warns(GEHWarning, match="only 0 and 1, and the model 3 outputs"):
        EXPLAINER.test_pairs(x, several[:, 0].int(), 0, progress=False)


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y.bfloat16(),
        lambda y: y.numpy().astype(object),
        lambda y: np.ma.masked_array(y.numpy(), mask=np.zeros(600, dtype=bool)),
    ],
)
def test_numbers_of_unusual_kinds_are_numbers(rows, labels):
    x, _, _ = rows
    y = logits(x)[:, 0] + torch.randn(600, generator=torch.Generator().manual_seed(1))
    model = geh.GEHExplainer(lambda x: logits(x)[:, 0], posterior=geh.posterior.PointEstimate())
    found, expected = (model.test_pairs(x, values, progress=False).slope[0] for values in (labels(y), y))
    assert found == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            lambda y: np.ma.masked_array(y.numpy(), mask=np.arange(600) < 5),
            "missing or infinite in 5 rows, first in row 0",
        ),
        (lambda y: [[1.0]] * 599 + [[1.0, 2.0]], "rows of different lengths"),
        (lambda y: [None, *y.tolist()[1:]], "missing or infinite in 1 rows"),
    ],
)
def test_labels_that_are_missing_or_ragged_are_refused(rows, labels, message):
    x, _, _ = rows
    model = geh.GEHExplainer(lambda x: logits(x)[:, 0], posterior=geh.posterior.PointEstimate())
    with pytest.raises(GEHValueError, match=message):
        model.test_pairs(x, labels(x[:, 0]), progress=False)


@pytest.mark.parametrize(("factor", "shift"), [(5.0, 0.0), (10.0, 0.0), (1.0, 10.0), (0.01, 0.0), (5.0, -5.0)])
def test_confidence_and_shift_of_logits_do_not_change_p_values(rows, factor, shift):
    """The logits are calibrated to the labels, whatever they are."""
    x, _, several = rows
    x, y = x.double(), several[:, 0].int()

    def test(model):
        return geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate()).test_pairs(x, y, progress=False)

    expected = test(lambda x: logits(x)[:, 0] + 0.3 * x[:, 1] * x[:, 2])
    found = test(lambda x: factor * (logits(x)[:, 0] + 0.3 * x[:, 1] * x[:, 2]) + shift)
    np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3)
    np.testing.assert_allclose(factor * found.slope, expected.slope, rtol=1e-3)
