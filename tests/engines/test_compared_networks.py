"""Networks of torch's own smooth layers are compared with double backward once per explainer, others in every run."""

import copy

import numpy as np
import pytest
import torch
from explaining import random_points
from torch import nn

import geh_explain as geh
from geh_explain.engines.exact import ExactRun


def made(activation: nn.Module | None = None, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), activation or nn.Tanh(), nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 1))


@pytest.fixture
def probes(monkeypatch):
    """Numbers of rows at which Hessians were computed by double backward for a comparison, one per comparison."""
    found = []
    probe = ExactRun.probe

    def counted(self, rows, directions):
        found.append(len(rows))
        return probe(self, rows, directions)

    monkeypatch.setattr(ExactRun, "probe", counted)
    return found


def explain(explainer: geh.GEHExplainer, **options: object) -> geh.Interactions:
    return explainer.explain(random_points(200, 3), groups=2, progress=False, **options)


def test_a_second_call_is_not_compared_and_gives_the_same_numbers(probes):
    explainer = geh.GEHExplainer(made(), posterior=geh.posterior.PointEstimate())
    first = explain(explainer)
    assert len(probes) == 2  # the choice of the engine, and the first chunk
    second = explain(explainer)
    assert len(probes) == 2
    np.testing.assert_array_equal(second.geh.draws, first.geh.draws)
    assert (first.settings["engine"], second.settings["engine"]) == ("structured", "structured")
    assert first.settings["engine_reason"] == second.settings["engine_reason"]
    explain(geh.GEHExplainer(made(), posterior=geh.posterior.PointEstimate()))
    assert len(probes) == 4


def test_other_weights_need_no_comparison_and_are_right(probes):
    net = made()
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    explain(explainer)
    net.load_state_dict(made(seed=1).state_dict())
    found = explain(explainer).geh.mean
    assert len(probes) == 2
    expected = geh.GEHExplainer(net, engine="exact", posterior=geh.posterior.PointEstimate())
    np.testing.assert_allclose(found, explain(expected).geh.mean, rtol=1e-4, atol=1e-7)


def replace_layer(net: nn.Sequential) -> None:
    net[1] = nn.Sigmoid()


def change_setting(net: nn.Sequential) -> None:
    net[3].beta = 10


def add_hook(net: nn.Sequential) -> None:
    net[1].register_forward_hook(lambda module, args, out: out**2)


@pytest.mark.parametrize("change", [replace_layer, change_setting, add_hook])
def test_a_network_that_was_changed_is_compared_anew(change, probes):
    net = made()
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    explain(explainer)
    change(net)
    found = explain(explainer).geh.mean
    assert len(probes) == 4
    exact = geh.GEHExplainer(net, engine="exact", posterior=geh.posterior.PointEstimate())
    np.testing.assert_allclose(found, explain(exact).geh.mean, rtol=1e-4, atol=1e-7)


def test_functions_in_the_place_of_torchs_own_are_compared(monkeypatch):
    net, tanh = made(), torch.tanh
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    explain(explainer)
    monkeypatch.setattr(torch, "tanh", lambda x: x.detach() * tanh(x))
    with pytest.warns(geh.GEHWarning, match="contradict differences of gradients"):
        again = explain(explainer)
    assert again.settings["engine"] == "exact"


def test_a_network_that_was_compiled_in_place_is_explained_as_before():
    net = made()
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    first = explain(explainer)
    net.compile(backend="eager")
    compiled = net._compiled_call_impl
    np.testing.assert_array_equal(explain(explainer).geh.draws, first.geh.draws)
    assert net._compiled_call_impl is compiled


@pytest.mark.parametrize(
    ("net", "options"),
    [
        (made(nn.ReLU()), {}),
        (made(nn.Softmax(dim=1)), {}),
        (made(), {"unit": 0}),
        (made(), {"groups": "pairwise"}),
    ],
    ids=["kinks", "other layers", "some pairs", "groups of each pair"],
)
def test_what_is_not_known_is_compared_in_every_call(net, options, probes):
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    explainer.explain(random_points(200, 3), **{"groups": 2, "progress": False, **options})
    once = len(probes)
    assert once > 0
    explainer.explain(random_points(200, 3), **{"groups": 2, "progress": False, **options})
    assert len(probes) == 2 * once


def test_members_of_an_ensemble_with_the_same_layers_are_compared_once(probes):
    equal = [made(seed=seed) for seed in range(4)]
    explain(geh.GEHExplainer(equal[0], posterior=geh.posterior.Ensemble(equal)))
    assert len(probes) == 2
    different = [made(), made(nn.Sigmoid()), made(nn.GELU())]
    explain(geh.GEHExplainer(different[0], posterior=geh.posterior.Ensemble(different)))
    assert len(probes) == 2 + 1 + 3


def test_an_ensemble_gives_the_interactions_of_its_members():
    members = [made(seed=seed) for seed in range(3)]
    found = explain(geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))).geh.draws
    for member, draw in zip(members, found, strict=True):
        alone = geh.GEHExplainer(copy.deepcopy(member), engine="exact", posterior=geh.posterior.PointEstimate())
        np.testing.assert_allclose(draw, explain(alone).geh.draws[0], rtol=1e-4, atol=1e-7)


def test_a_network_that_disagreed_later_is_compared_again(probes, monkeypatch):
    explainer = geh.GEHExplainer(made(), posterior=geh.posterior.PointEstimate())
    first = explain(explainer)
    assert len(probes) == 2
    # From now on every chunk is compared, and the comparison fails.
    choose = "geh_explain.engines.structured.engine.choose_points"
    monkeypatch.setattr(choose, lambda rows, seed, max_rows, always: np.arange(4)[None])
    with monkeypatch.context() as patch:
        patch.setattr("geh_explain.engines.structured.engine.products_agree", lambda *args: False)
        with pytest.warns(geh.GEHWarning, match="computed all draws again"):
            fallen_back = explain(explainer)
    assert fallen_back.settings["engine"] == "exact"
    np.testing.assert_allclose(fallen_back.geh.mean, first.geh.mean, rtol=1e-4, atol=1e-7)
    count = len(probes)
    explain(explainer)
    assert len(probes) == count + 2
