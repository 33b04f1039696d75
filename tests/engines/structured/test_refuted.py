"""A wrong rule of the structured engine is found while draws are computed, and all draws are computed exactly."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.engines.structured.rules import curved
from geh_explain.run.checkpoint import Checkpoint

#: One row in twenty has a larger input of the first tanh, and none of the first rows, on which engines are tried.
OUTLIER = 1.7


@pytest.fixture
def wrong_rule(monkeypatch):
    """Let the structured engine forget the curvature of tanh at outliers."""
    closed_form = curved._closed_form

    def wrong(recorder, func, z, args, kwargs):
        value, slope, second = closed_form(recorder, func, z, args, kwargs)
        return value, slope, torch.where(z.abs().amax(dim=1, keepdim=True) > OUTLIER, 0.0, second)

    monkeypatch.setattr(curved, "_closed_form", wrong)


def network(inputs=4):
    """tanh of four linear maps of the inputs, and dropout above."""
    torch.manual_seed(0)
    below = nn.Linear(inputs, 4, bias=False)
    with torch.no_grad():
        below.weight.copy_(0.3 * (torch.eye(4, inputs) + 0.1))
    return nn.Sequential(below, nn.Tanh(), nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1)).double()


def rows(n=1000, inputs=4, seed=0):
    x = torch.randn(n, inputs, dtype=torch.double, generator=torch.Generator().manual_seed(seed)).clamp(-2.5, 2.5)
    x[10::20, 0] = 7.0
    return x


def without_checks(monkeypatch):
    """Let no chunk be compared within the context."""
    monkeypatch.setattr("geh_explain.engines.structured.engine.choose_points", lambda *args, **options: None)


def explain(x, engine="auto", **options):
    explainer = geh.GEHExplainer(network(x.shape[1]), engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return explainer.explain(x, groups=2, progress=False, **options)


def assert_same_scores(found, expected):
    for measure in ("aeh", "geh", "eah"):
        np.testing.assert_allclose(found.scores(measure).draws, expected.scores(measure).draws, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.point_errors, expected.point_errors, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("inputs", [4, 12])
def test_without_checks_the_rule_would_change_the_scores(inputs, wrong_rule, monkeypatch):
    without_checks(monkeypatch)
    x = rows(inputs=inputs)
    assert not (network(inputs)[0](x)[:10].abs() > OUTLIER).any()
    found, expected = (explain(x, engine, draws=2) for engine in ("auto", "exact"))
    assert found.settings["engine"] == "structured"
    assert abs(found.eah.pair_mean / expected.eah.pair_mean - 1).max() > 0.01


@pytest.mark.parametrize("options", [{}, {"batch_size": 50}], ids=["draws at once", "small chunks"])
def test_a_rule_that_is_wrong_at_outliers_is_found_and_the_numbers_are_exact(options, wrong_rule):
    found = explain(rows(), draws=20, **options)
    assert_same_scores(found, explain(rows(), "exact", draws=20, **options))
    assert found.settings["engine"] == "exact"
    assert "differs from that of autograd at some points" in found.settings["engine_reason"]
    assert any("computed all draws again" in message for message in found.settings["warnings"])


def test_it_is_found_whatever_the_seed(wrong_rule):
    assert [explain(rows(seed=seed), draws=20, seed=seed).settings["engine"] for seed in range(10)] == ["exact"] * 10


def test_it_is_found_at_a_narrow_layer_where_absolute_values_were_to_be_measured_at_a_part_of_the_points(wrong_rule):
    x = rows(inputs=12)
    found = explain(x, draws=5, eah_points=100)
    assert_same_scores(found, explain(x, "exact", draws=5))
    assert found.settings["eah_points"] == len(x)


def test_a_member_of_an_ensemble_with_another_forward_is_compared_in_its_own_draw(wrong_rule):
    linear = nn.Linear(4, 1).double()
    members = [linear, linear, network().eval()]
    results = []
    for engine in ("auto", "exact"):
        explainer = geh.GEHExplainer(linear, engine=engine, posterior=geh.posterior.Ensemble(members))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(explainer.explain(rows(), groups=2, progress=False))
    assert_same_scores(*results)


def test_draws_of_a_checkpoint_are_discarded(wrong_rule, monkeypatch, tmp_path):
    discarded = []
    discard = Checkpoint.discard
    monkeypatch.setattr(Checkpoint, "discard", lambda self: (discarded.append(1), discard(self)))
    with monkeypatch.context() as patched:
        without_checks(patched)
        explain(rows(), draws=3, checkpoint=tmp_path)
    found = explain(rows(), draws=20, checkpoint=tmp_path)
    assert discarded
    assert_same_scores(found, explain(rows(), "exact", draws=20))
    again = explain(rows(), draws=20, checkpoint=tmp_path)
    assert_same_scores(again, found)


def test_an_interrupt_after_the_mismatch_gives_no_result_of_the_wrong_engine(wrong_rule, monkeypatch):
    from geh_explain.engines.structured.engine import StructuredRun

    add = StructuredRun.add

    def interrupted(self, sums, rows, labels):
        add(self, sums, rows, labels)
        if self.refuted:
            raise KeyboardInterrupt

    monkeypatch.setattr(StructuredRun, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explain(rows(), draws=20)


def test_right_rules_are_not_refuted_in_saturated_rows():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, 50), nn.GELU(), nn.Linear(50, 3), nn.Softmax(1))
    for dtype in (torch.float32, torch.float64):
        x = 100 * torch.randn(400, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
        explainer = geh.GEHExplainer(net.to(dtype), posterior=geh.posterior.PointEstimate())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert explainer.explain(x, 0, groups=1, progress=False).settings["engine"] == "structured"
