"""Models that compute parts again in the backward pass, by torch.utils.checkpoint, are explained as without it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import checkpoint as module
from torch.utils.checkpoint import checkpoint

import geh_explain as geh


class Checkpointed(nn.Module):
    """A network with a part that is checkpointed if ``reentrant`` is True or False, and not if it is None."""

    def __init__(self, activation, dropout):
        super().__init__()
        torch.manual_seed(0)
        parts = [nn.Linear(4, 12), activation(), nn.Dropout(dropout), nn.Linear(12, 12), activation()]
        self.part, self.head, self.reentrant = nn.Sequential(*parts), nn.Linear(12, 1), None

    def forward(self, x):
        if self.reentrant is None:
            return self.head(self.part(x))
        return self.head(checkpoint(self.part, x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("layer", [None, "part.1"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Hardtanh, nn.SiLU])
def test_scores_are_those_of_the_model_without_checkpoints(activation, dropout, layer):
    model = Checkpointed(activation, dropout)
    posterior = geh.posterior.MCDropout() if dropout else geh.posterior.PointEstimate()
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    scores = []
    for model.reentrant in (None, False, True):
        explainer = geh.GEHExplainer(model, layer, posterior=posterior)
        scores.append(explainer.explain(x, groups=1, draws=3, progress=False).geh.draws)
    assert np.abs(scores[0]).max() > 0
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(scores[2], scores[0], rtol=1e-5, atol=1e-9)


def test_torch_is_as_it_was_afterwards():
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator
    model = Checkpointed(nn.Tanh, 0.0)
    model.reentrant = False
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    explainer.explain(torch.randn(10, 4), groups=1, progress=False)
    with pytest.raises(geh.GEHError):
        explainer.explain(torch.randn(10, 5), progress=False)
    assert before == (module.CheckpointFunction, module._checkpoint_without_reentrant_generator)
