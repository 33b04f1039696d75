"""Data at the limits: one point, two units, constant features, equal points, overflowing precision."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from expected_errors import ROWS, valid_points
from explaining import explain_draws, explain_point, random_points
from networks import dropout_network
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate


def test_a_single_point_is_explained():
    x = valid_points(1)
    hessian = (
        torch.autograd.functional.hessian(lambda x: dropout_network().eval()(x[None]).squeeze(), x[0]).abs().numpy()
    )
    for groups in (1, "auto"):
        result = explain_point(dropout_network(), x, groups=groups)
        for scores in (result.geh, result.aeh, result.eah):
            assert scores.mean == pytest.approx(hessian * (1 - np.eye(3)), rel=1e-4, abs=1e-7)
        assert (result.labels.tolist(), result.group_names) == ([0], ["0"])
    with pytest.warns(geh.GEHWarning, match="scale='std': there is only one point"):
        assert not explain_point(dropout_network(), x, scale="std", groups=1).geh.mean.any()
    assert geh.GEHExplainer(dropout_network(), posterior=PointEstimate()).choose_groups(x, progress=False).chosen == 1


def test_a_single_point_is_drawn_and_reported(tmp_path):
    result = explain_draws(dropout_network(), valid_points(1), posterior=MCDropout())
    assert "<dt>Points</dt> <dd>1 in 1 group</dd>" in result.report(tmp_path / "page.html").read_text()
    shown = result.plot.heatmap().images[0].get_array().filled(0)
    assert shown == pytest.approx(result.geh.mean)
    regions = result.plot.regions(0, 1)
    assert [label.get_text() for label in regions.get_yticklabels()] == ["0 (1)"]
    assert regions.collections[-1].get_offsets()[0, 0] == pytest.approx(result.signed[:, 0, 0].mean())
    plt.close("all")


def test_two_units_are_one_pair(tmp_path):
    result = explain_draws(
        dropout_network(2), random_points(ROWS, 2, seed=1, dtype=torch.float), posterior=MCDropout(), groups="auto"
    )
    assert result.geh.draws.shape == (4, 1)
    assert len(result.table()) == 1
    assert geh.Interactions.load(result.save(tmp_path / "pair")).table().equals(result.table())
    assert result.report(tmp_path / "page.html").is_file()
    assert result.plot.heatmap().images[0].get_array().filled(0) == pytest.approx(result.geh.mean)
    assert [label.get_text() for label in result.plot.intervals().get_yticklabels()] == ["x0 × x1"]
    assert len(result.plot.network().collections[0].get_paths()) == 1
    plt.close("all")


class Steep(nn.Module):
    """Overflows half precision: what it sums up is larger than 65504."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.gain = (
            nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)),
            nn.Parameter(torch.tensor(6e4)),
        )

    def forward(self, x):
        return self.gain * (10 + self.net(x))


def test_a_half_precision_model_that_overflows_is_explained_in_single_precision():
    model = Steep().half()
    assert not torch.isfinite(model(valid_points().half())).any()
    with pytest.warns(geh.GEHWarning, match="float16"):
        result = explain_point(model, valid_points().half(), groups=2)
    expected = explain_point(Steep().half().float(), valid_points().half().float(), groups=2)
    assert result.signed == pytest.approx(expected.signed, rel=1e-4)
    assert result.geh.mean.any()
    assert model.gain.dtype == torch.float16


def test_half_precision_inside_a_forward_that_overflows_is_refused():
    with pytest.raises(geh.GEHError, match="NaN or infinite"):
        explain_point(lambda x: (x * 1e4).half().prod(1), valid_points(), groups=2)


@pytest.mark.parametrize("groups", [1, 2, "auto"])
def test_a_constant_feature_has_no_spread_and_an_interaction_all_the_same(groups):
    x = valid_points()
    x[:, 2] = 7.0
    plain = explain_point(lambda x: x.prod(1), x, groups=groups)
    with pytest.warns(geh.GEHWarning, match="scale='std': the units x2 are constant over the points"):
        scaled = explain_point(lambda x: x.prod(1), x, groups=groups, scale="std")
    assert np.isfinite(scaled.signed).all()
    assert scaled.geh.mean[0, 1] > 0
    assert not scaled.geh.mean[2].any()
    assert plain.aeh.mean[0, 1] == pytest.approx(7.0)


def test_points_that_are_all_the_same_are_one_group():
    x = valid_points(1).repeat(ROWS, 1)
    result = explain_point(dropout_network(), x, groups="auto")
    assert len(result.group_names) == 1
    assert result.geh.mean == pytest.approx(
        explain_point(dropout_network(), x[:1], groups=1).geh.mean, rel=1e-5, abs=1e-8
    )
    with pytest.raises(geh.GEHError, match="1 distinct"):
        explain_point(dropout_network(), x, groups=2)


def test_duplicates_of_all_points_change_nothing():
    once, thrice = (
        explain_point(dropout_network(), x, groups=2) for x in (valid_points(), valid_points().repeat(3, 1))
    )
    for measure in ("geh", "aeh", "eah"):
        assert thrice.scores(measure).mean == pytest.approx(once.scores(measure).mean, rel=1e-5, abs=1e-8)
    assert thrice.sizes.tolist() == (3 * once.sizes).tolist()
