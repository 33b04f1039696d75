"""The plan of a run: the number of passes over the data before the first draw, and what is decided then."""

import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.groups import positions
from geh_explain.run import loop

ROWS = 600


class CountingNet(nn.Module):
    """A ReLU network that counts the rows that reach its first and its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.below, self.above = nn.Linear(5, 8), nn.Linear(8, 1)
        self.rows_below = self.rows_above = 0

    def forward(self, x):
        self.rows_below += len(x)
        hidden = torch.relu(self.below(x))
        self.rows_above += len(x)
        return self.above(hidden * hidden.sum(1, keepdim=True))


class _FirstDrawReachedError(Exception):
    pass


@pytest.fixture
def stop_before_draws(monkeypatch):
    """Raise where the first draw would begin."""

    def stop(self):
        raise _FirstDrawReachedError

    monkeypatch.setattr(loop._DrawLoop, "run", stop)


def rows_before_the_first_draw(layer, engine="auto", **options):
    net = CountingNet()
    explainer = geh.GEHExplainer(net, layer, engine=engine, posterior=geh.posterior.PointEstimate())
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0))
    with pytest.raises(_FirstDrawReachedError):
        explainer.explain(x, progress=False, **options)
    return net


# A few rows are used to look at the model, and 64 rows are shifted up and down for the sharpness of smoothing.
FEW = 300
# Stein's engine takes 4 pairs of samples at 64 rows, tries its control variate at 32 of them, and reads their units.
PILOT = 64 * 2 * 4 + 32 + 64


@pytest.mark.usefixtures("stop_before_draws")
@pytest.mark.parametrize("layer", [None, "below"])
@pytest.mark.parametrize("engine", ["auto", "structured", "exact", "difference", "stein"])
def test_the_data_are_passed_at_most_twice_before_the_first_draw(layer, engine):
    net = rows_before_the_first_draw(layer, engine, groups="auto", scale="std")
    few = FEW if engine != "stein" else FEW + PILOT
    assert net.rows_below <= 2 * ROWS + few
    assert net.rows_above <= 2 * ROWS + few


@pytest.mark.usefixtures("stop_before_draws")
def test_assigning_points_to_groups_found_from_a_sample_takes_no_third_pass(monkeypatch):
    monkeypatch.setattr(positions, "MAX_POINTS", 100)
    net = rows_before_the_first_draw("below", groups=4, scale="std")
    assert ROWS < net.rows_below <= 2 * ROWS + FEW


@pytest.mark.usefixtures("stop_before_draws")
def test_nothing_is_passed_where_nothing_has_to_be_measured():
    net = rows_before_the_first_draw("below", "exact", groups=1)
    assert net.rows_below <= 2 * ROWS + FEW  # smoothing has to be measured
    smooth_net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    calls = []
    smooth_net.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
    explainer = geh.GEHExplainer(smooth_net, posterior=geh.posterior.PointEstimate())
    with pytest.raises(_FirstDrawReachedError):
        explainer.explain(torch.randn(ROWS, 5), groups=1, progress=False)
    assert sum(calls) < FEW


def test_an_engine_instance_serves_any_number_of_explainers_unchanged():
    engine = geh.engines.Difference(step=0.3)
    before = dict(vars(engine))
    x = torch.randn(60, 3)
    point = geh.posterior.PointEstimate()
    one = geh.GEHExplainer(lambda x: x.prod(1), engine=engine, posterior=point)
    two = geh.GEHExplainer(lambda x: 2 * x.prod(1), engine=engine, posterior=point)
    first = one.explain(x, groups=1, progress=False).geh.mean
    two.explain(torch.randn(40, 3), groups=1, progress=False)
    assert vars(engine) == before
    assert (one.explain(x, groups=1, progress=False).geh.mean == first).all()
    with pytest.raises(AttributeError):
        engine.step = 1.0
