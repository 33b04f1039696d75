"""Diagnosis of a posterior: the errors of its draws, and the calibration of their predictions."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate, WeightSamples

pytestmark = pytest.mark.usefixtures("seeded")


class Shifted(nn.Module):
    """Adds a number to its first input."""

    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x[:, :1] + self.by


def shifts(values):
    return WeightSamples([{"by": torch.tensor([float(value)])} for value in values])


def test_each_draw_has_its_error_and_all_of_them_one():
    x = torch.randn(400, 2)
    found = geh.GEHExplainer(Shifted(), posterior=shifts([-1, 1, 3])).diagnose(x, y=x[:, 0] + 2, progress=False)
    assert found.errors == pytest.approx([3, 1, 1], rel=1e-5)
    assert found.error == pytest.approx(1, rel=1e-5)
    assert found.point_error == pytest.approx(2, rel=1e-5)


def test_predictions_of_a_calibrated_posterior_are_as_sure_as_they_should_be():
    rng = np.random.default_rng(0)
    x = torch.randn(5000, 2)
    y = x[:, 0].numpy() + rng.normal(0, 0.5, 5000)
    explainer = geh.GEHExplainer(Shifted(), posterior=shifts(rng.normal(0, 0.1, 200)))
    found = explainer.diagnose(x, y=y, draws=200, progress=False)
    assert found.covered == pytest.approx(found.levels, abs=0.03)
    assert list(found.calibration().columns) == ["level", "covered"]
    assert "RMSE" in repr(found)
    ax = found.plot()
    assert ax.get_ylabel() == "observed"


def test_a_broken_posterior_is_named():
    x = torch.randn(300, 2)
    explainer = geh.GEHExplainer(Shifted(), posterior=shifts([5, -5]))
    with pytest.warns(geh.GEHWarning, match="100% of its draws err more than twice"):
        found = explainer.diagnose(x, y=x[:, 0] + 0.1 * torch.randn(300), progress=False)
    assert found.broken == 1


def test_classes_are_compared_by_their_probabilities():
    net, x = nn.Linear(3, 4), torch.randn(50, 3)
    y = torch.randint(4, (50,))
    raw = geh.GEHExplainer(net, posterior=PointEstimate()).diagnose(x, y=y, target=0, progress=False)
    assert raw.errors == pytest.approx([nn.functional.cross_entropy(net(x), y).item()], rel=1e-5)
    probable = geh.GEHExplainer(net, output="probability", posterior=PointEstimate())
    assert probable.diagnose(x, y=y, target=0, progress=False).error == pytest.approx(raw.error, rel=1e-5)
    two = nn.Linear(3, 1)
    found = geh.GEHExplainer(two, posterior=PointEstimate()).diagnose(x, y=y > 1, progress=False)
    expected = nn.functional.binary_cross_entropy_with_logits(two(x)[:, 0], (y > 1).float()).item()
    assert found.error == pytest.approx(expected, rel=1e-5)
    assert found.covered.shape == (5,)


def test_draws_of_dropout_err_more_than_their_mean_and_the_model_is_untouched():
    net = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Dropout(0.3), nn.Linear(50, 1))
    x = torch.randn(200, 3)
    y = net.eval()(x)[:, 0].detach()
    net.train()
    with pytest.warns(geh.GEHWarning, match="of its draws err"):
        found = geh.GEHExplainer(net, posterior=MCDropout()).diagnose(x, y=y, draws=20, progress=False)
    assert found.error < found.errors.min()
    assert net.training


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.zeros(7), "y has shape \\(7,\\) for 20 rows"),
        (torch.full((20,), torch.nan), "y is NaN"),
        (torch.full((20,), 5), "y has classes 5 to 5; the model has 2"),
    ],
)
def test_wrong_targets_are_refused(y, message):
    explainer = geh.GEHExplainer(nn.Linear(3, 2), posterior=PointEstimate())
    with pytest.raises(geh.GEHError, match=message):
        explainer.diagnose(torch.randn(20, 3), y=y, target=0, progress=False)


class Noisy(Shifted):
    def forward(self, x):
        return super().forward(x) + 0.1 * torch.randn(1)


def test_every_posterior_is_diagnosed():
    x, net = torch.randn(60, 2), Shifted()
    others = [Shifted(), Shifted()]
    others[0].by.data += 0.1
    gaussian = nn.Sequential(geh.bnn.MeanField(nn.Linear(2, 1)))
    drop = nn.Sequential(geh.bnn.ConcreteDropout(nn.Linear(2, 1)))
    noise = torch.randn(60)
    for model, posterior, by in (
        (net, geh.posterior.Ensemble(others), [0.1, 0]),
        (net, shifts([0.1, 0.2]), [0.1, 0.2]),
        (net, PointEstimate(), [0]),
        (Noisy(), geh.posterior.Stochastic(), None),
        (gaussian, None, None),
        (drop, None, None),
    ):
        y = model.eval()(x)[:, 0].detach() + noise
        found = geh.GEHExplainer(model, posterior=posterior).diagnose(x, y=y, draws=3, progress=False)
        if by is None:
            assert len(found.errors) == 3
            assert found.errors == pytest.approx([float(noise.std())] * 3, rel=0.5)
            assert np.ptp(found.errors) > 0
        else:
            # A draw that shifts the model by b has the error of b - noise.
            assert found.errors == pytest.approx([float((b - noise).square().mean().sqrt()) for b in by], rel=1e-5)
        # Nearly all targets lie in the widest interval, whose level is the last.
        assert found.covered[-1] == pytest.approx(found.levels[-1], abs=0.1)


def test_a_ranking_that_is_not_settled_is_a_warning():
    net = nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Dropout(0.9), nn.Linear(100, 1))
    explain = geh.GEHExplainer(net, posterior=MCDropout()).explain
    with pytest.warns(geh.GEHWarning, match="draws=20 do not settle the ranking"):
        result = explain(torch.randn(30, 6), groups=2, draws=20, progress=False)
    assert any("do not settle" in note for note in result.settings["warnings"])


def test_texts_are_no_targets():
    explainer = geh.GEHExplainer(torch.nn.Linear(3, 2), posterior=geh.posterior.PointEstimate())
    with pytest.raises(geh.GEHError, match=r"y has dtype .*indices of classes"):
        explainer.diagnose(torch.ones(4, 3), 0, y=["a", "b", "a", "b"], progress=False)
