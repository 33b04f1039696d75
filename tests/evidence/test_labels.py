"""Held-out labels: what is read as numbers, as classes, and as one of several labels."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.errors import GEHValueError, GEHWarning


def logits(x):
    """Return three outputs; the first one has the interaction x0 × x1."""
    return torch.stack([2 * x[:, 0] * x[:, 1] + x[:, 2], -x[:, 2], 0.5 * x[:, 0]], 1)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=generator)
    classes = torch.multinomial(torch.softmax(logits(x), 1), 1, generator=generator)[:, 0]
    several = torch.rand(600, 3, generator=generator) < torch.sigmoid(logits(x))
    return x, classes, several


def evidence_for(x, y, target=0, model=logits, **options):
    """Return the evidence for the pairs of a network."""
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    return explainer.test_pairs(x, y, target, progress=False, **options)


def first_output(x):
    return logits(x)[:, 0]


def test_one_hot_labels_of_any_dtype_are_class_indices(rows):
    x, classes, _ = rows
    expected = evidence_for(x, classes)
    assert expected.link == "logit"
    assert expected.p_value[0] < 1e-6
    one_hot = torch.nn.functional.one_hot(classes, 3)
    for labels in (one_hot, one_hot.bool(), one_hot.float(), one_hot.numpy().tolist()):
        found = evidence_for(x, labels)
        np.testing.assert_array_equal(found.p_value, expected.p_value)


def test_several_labels_are_log_odds_of_their_own(rows):
    x, _, several = rows
    expected = evidence_for(x, several[:, 0].int(), None, first_output)
    for labels in (several, several.int(), several.float()):
        found = evidence_for(x, labels)
        assert found.link == "logit"
        np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3, atol=1e-6)


def test_numbers_in_columns_are_a_regression(rows):
    x, _, _ = rows
    y = logits(x) + torch.randn(600, 3, generator=torch.Generator().manual_seed(1))
    found = evidence_for(x, y)
    assert found.link == "identity"
    assert 0.8 < found.slope[0] < 1.2


def test_class_indices_as_floats_and_booleans_are_refused(rows):
    x, classes, several = rows
    with pytest.raises(GEHValueError, match="whole numbers 0 to 2 as floats"):
        evidence_for(x, classes.float())
    with pytest.warns(GEHWarning, match="explain none of the variance"):  # these outputs are logits
        assert evidence_for(x, classes.float(), link="identity").link == "identity"
    with pytest.raises(TypeError, match="one column of 0 and 1 per output"):
        evidence_for(x, several[:, 0])


def test_one_column_of_several_labels_warns(rows):
    x, _, several = rows
    with (
        pytest.warns(GEHWarning, match="do not go with label 1"),
        pytest.warns(GEHWarning, match="only 0 and 1, and the model 3 outputs"),
    ):
        evidence_for(x, several[:, 0].int())


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
    found, expected = (evidence_for(x, values, None, first_output).slope[0] for values in (labels(y), y))
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
    with pytest.raises(GEHValueError, match=message):
        evidence_for(x, labels(x[:, 0]), None, first_output)


@pytest.mark.parametrize(("factor", "shift"), [(5.0, 0.0), (10.0, 0.0), (1.0, 10.0), (0.01, 0.0), (5.0, -5.0)])
def test_confidence_and_shift_of_logits_do_not_change_p_values(rows, factor, shift):
    """The logits are calibrated to the labels, whatever they are."""
    x, _, several = rows
    x, y = x.double(), several[:, 0].int()

    def model(x):
        return logits(x)[:, 0] + 0.3 * x[:, 1] * x[:, 2]

    expected = evidence_for(x, y, None, model)
    found = evidence_for(x, y, None, lambda x: factor * model(x) + shift)
    np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3)
    np.testing.assert_allclose(factor * found.slope, expected.slope, rtol=1e-3)


def additive_log_odds(x):
    return 1.5 * x[:, 0] + 1.5 * x[:, 1] - 1.5


def with_a_spurious_pair(x):
    return additive_log_odds(x) + 0.1 * x[:, 0] * x[:, 1]


def coin_flips(seed, rows=800):
    """Return inputs (rows, 2) and classes (rows,) whose log-odds have no interaction."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 2, generator=generator).double()
    return x, torch.rand(rows, generator=generator) < torch.sigmoid(additive_log_odds(x))


def test_labels_of_minus_one_and_one_are_classes_of_any_dtype():
    x, y = coin_flips(0)
    expected = evidence_for(x, y, None, with_a_spurious_pair)
    assert expected.link == "logit"
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int8):
        found = evidence_for(x, (2 * y.int() - 1).to(dtype), None, with_a_spurious_pair)
        assert found.link == "logit"
        np.testing.assert_array_equal(found.p_value, expected.p_value)


def test_a_pair_of_log_odds_is_not_found_in_labels_of_minus_one_and_one():
    """As numbers they have an interaction, as probabilities of additive log-odds do: 12 of 12 data sets found it."""
    p_values = []
    for seed in range(12):
        x, y = coin_flips(seed)
        p_values.append(evidence_for(x, 2.0 * y - 1, None, with_a_spurious_pair).p_value[0])
    assert sum(p_value < 0.05 for p_value in p_values) <= 3  # 0.6 expected


@pytest.mark.parametrize("codes", [(0, 1), (-1, 1), (1, 2)])
def test_a_network_fitted_by_least_squares_is_compared_with_the_numbers_of_the_classes(codes):
    """Its output is the mean of the labels, whatever numbers stand for the classes."""
    x, y = coin_flips(1, 3000)
    low, high = codes
    labels = low + (high - low) * y.int()

    def probability(x):
        return torch.sigmoid(additive_log_odds(x))

    explainer = geh.GEHExplainer(additive_log_odds, posterior=geh.posterior.PointEstimate(), output="probability")
    expected = explainer.test_pairs(x, y, progress=False)
    np.testing.assert_allclose(explainer.test_pairs(x, labels, progress=False).slope, expected.slope)
    for model in (lambda x: low + (high - low) * probability(x), probability):
        found = evidence_for(x, labels, None, model)
        assert found.link == "identity"
        np.testing.assert_allclose(found.slope, expected.slope)


def test_two_other_floats_are_numbers():
    x, y = coin_flips(0)
    found = evidence_for(x, 5.0 * y, None, lambda x: 5 * torch.sigmoid(with_a_spurious_pair(x)))
    assert found.link == "identity"
    with pytest.raises(GEHValueError, match="link='logit' needs labels of classes"):
        evidence_for(x, 5.0 * y, None, with_a_spurious_pair, link="logit")


def test_columns_of_minus_one_and_one_are_those_of_0_and_1(rows):
    x, classes, several = rows
    for labels in (torch.nn.functional.one_hot(classes, 3), several.int()):
        expected = evidence_for(x, labels)
        for signs in (2 * labels - 1, 2.0 * labels - 1):
            found = evidence_for(x, signs)
            assert found.link == "logit"
            np.testing.assert_array_equal(found.p_value, expected.p_value)
    with pytest.raises(GEHValueError, match="whole numbers -1 to 1 as floats"):
        evidence_for(x, 2.0 * several[:, 0] - 1)
