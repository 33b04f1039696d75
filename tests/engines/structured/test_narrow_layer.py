"""Units that enter through a linear map which differs from chunk to chunk, such as a gate by domain of the rows."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


class Gated(nn.Module):
    """tanh network of the inputs times a gate: a further argument, or which inputs are positive."""

    def __init__(self, units=40):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(units, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def forward(self, x, gate=None):
        return self.net(x * ((x > 0) if gate is None else gate))


def local_hessians(net, x, gate):
    """Return the Hessians (N, D, D) by torch, row by row."""
    rows = range(len(x))
    arguments = [() if gate is None else (gate[k : k + 1],) for k in rows]
    return torch.stack(
        [torch.autograd.functional.hessian(lambda row, k=k: net(row[None], *arguments[k]).sum(), x[k]) for k in rows]
    )


@pytest.fixture(params=["by row", "by block of ten rows", "of each row itself"])
def gated(request):
    """The network, inputs, their gates, and the local Hessians."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(30, 40, generator=generator).double()
    gates = torch.rand(30, 40, generator=generator).double()
    gate = {"by row": gates, "by block of ten rows": gates[:3].repeat_interleave(10, 0)}.get(request.param)
    net = Gated()
    return net, x, gate, local_hessians(net, x, gate)


@pytest.mark.parametrize("batch_size", [None, 1, 7, 10])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, 30)])
def test_chunks_with_maps_of_their_own_are_added_up(gated, batch_size, weights):
    net, x, gate, hessians = gated
    shares = torch.ones(30).double() / 30 if weights is None else torch.as_tensor(weights / weights.sum())
    result = geh.GEHExplainer(net, posterior=POINT).explain(
        x, None, gate, groups=1, batch_size=batch_size, eah_points=30, sample_weight=weights, progress=False
    )
    first, second = np.triu_indices(40, 1)
    signed = torch.einsum("n,nij->ij", shares, hessians)[first, second]
    absolute = torch.einsum("n,nij->ij", shares, hessians.abs())[first, second]
    np.testing.assert_allclose(result.geh.pair_mean, signed.abs(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.eah.pair_mean, absolute, rtol=1e-9, atol=1e-12)
    assert result.settings["engine"] == "structured"


@pytest.mark.parametrize("gated", ["by block of ten rows"], indirect=True)
def test_points_at_which_absolute_values_are_measured_keep_their_map(gated):
    """Absolute values of 29 of 30 points: without the point k their mean is (30 mean - |H_k|) / 29."""
    net, x, gate, hessians = gated
    result = geh.GEHExplainer(net, posterior=POINT).explain(
        x, None, gate, groups=1, batch_size=10, eah_points=29, progress=False
    )
    first, second = np.triu_indices(40, 1)
    with pytest.warns(geh.GEHWarning, match="29 of 30 points"):
        measured = torch.as_tensor(result.eah.pair_mean)
    without = (30 * hessians.abs().mean(0) - hessians.abs()) / 29
    assert (without[:, first, second] - measured).abs().amax(1).min() < 1e-12
    np.testing.assert_allclose(result.geh.pair_mean, hessians.mean(0).abs()[first, second], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_a_search_finds_the_pairs_of_the_sum(gated, batch_size):
    net, x, gate, hessians = gated
    found = geh.GEHExplainer(net, posterior=POINT).search(
        x, None, gate, top=8, groups=1, batch_size=batch_size, progress=False
    )
    first, second = np.triu_indices(40, 1)
    scores = hessians.mean(0).abs().numpy()
    strongest = np.argsort(-scores[first, second])[:8]
    expected = set(zip(first[strongest].tolist(), second[strongest].tolist(), strict=True))
    assert set(zip(*(ends.tolist() for ends in found.pairs.ends), strict=True)) == expected
    np.testing.assert_allclose(found.geh.pair_mean, scores[found.pairs.ends], rtol=1e-9)
