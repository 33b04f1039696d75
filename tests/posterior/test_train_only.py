"""Dropout that a model applies in train mode only is found, and nothing else of train mode comes with it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate


class Attending(nn.Module):
    """Attention as most published transformers write it."""

    def __init__(self, p=0.5):
        super().__init__()
        self.qkv, self.p = nn.Linear(4, 12), p

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)


class Transformer(nn.Module):
    def __init__(self, p=0.5, other=0.0):
        super().__init__()
        self.attention, self.norm, self.drop = Attending(p), nn.BatchNorm1d(3), nn.Dropout(other)
        self.last = nn.Linear(12, 1)
        self.double()

    def forward(self, x):
        return self.last(torch.tanh(self.drop(self.norm(self.attention(x)))).flatten(1))


class OnlyInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).double()

    def forward(self, x):
        return self.net(F.dropout(x, 0.5) if self.training else x)


class TwoFaced(nn.Module):
    """Drops in train mode, and puts out something else there."""

    def __init__(self, when="tuple"):
        super().__init__()
        self.net, self.when = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 1)).double(), when
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if not self.training:
            return self.net(x)
        x = F.dropout(x, 0.5)
        if self.when == "fails":
            raise ValueError("not today")
        if self.when == "counts":
            self.count += 1
        out = self.net(x)
        return {"tuple": (out, out), "other": out + 1}.get(self.when, out)


def explain(model, posterior=None, shape=(3, 4), draws=6, **options):
    inputs = torch.randn(8, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    options = {"groups": 1, "draws": draws, "progress": False} | options
    return geh.GEHExplainer(model, posterior=posterior).explain(inputs, **options)


def test_attention_dropout_of_train_mode_is_drawn():
    result = explain(Transformer())
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0


@pytest.mark.parametrize("posterior", [None, MCDropout()], ids=["by default", "asked for"])
def test_dropout_behind_the_training_flag_of_the_whole_model_is_drawn(posterior):
    result = explain(OnlyInTraining(), posterior, shape=(3,))
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0


def test_it_is_not_passed_over_where_there_is_other_dropout_too():
    model = Transformer(p=0.5, other=0.2)
    with_it = explain(model).absolute
    model.attention.p = 0.0
    assert not np.allclose(with_it, explain(model).absolute)


def test_batch_normalisation_keeps_its_statistics_and_modes_come_back():
    model = Transformer()
    model.train()
    model.attention.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    explain(model, MCDropout())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert model.norm.training
    assert not model.attention.training


def test_a_draw_is_the_mask_applied_by_hand():
    model, x = Transformer().eval(), torch.randn(5, 3, 4, dtype=torch.double)
    (draw,) = MCDropout().draws(model, 1, seed=3)
    with torch.no_grad(), draw:
        model(x[:1])
        together, alone = model(x), torch.cat([model(row[None]) for row in x])
    assert torch.allclose(together, alone)
    assert not torch.allclose(together, model(x))


@pytest.mark.parametrize("when", ["tuple", "other", "counts"])
def test_what_does_other_things_in_train_mode_stays_in_eval_and_is_named(when):
    model = TwoFaced(when)
    with pytest.warns(geh.GEHWarning, match="TwoFaced drop in train mode only and do other things"):
        result = explain(model, shape=(3,))
    # Its other dropout is drawn all the same.
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0
    assert float(model.count) == 0


def test_what_fails_in_train_mode_stays_in_eval():
    result = explain(TwoFaced("fails"), shape=(3,))
    assert np.ptp(result.absolute, axis=0).max() > 0


def test_stochastic_depth_beside_it_is_drawn_once():
    class DropPath(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop_prob = 0.5

        def forward(self, x):
            return x * (torch.rand(len(x), 1, 1) > self.drop_prob) if self.training else x

    class Deep(Transformer):
        def __init__(self):
            super().__init__()
            self.path = DropPath()

        def forward(self, x):
            return super().forward(x + self.path(self.attention(x)))

    model, x = Deep(), torch.randn(4, 3, 4, dtype=torch.double)
    (draw,) = MCDropout().draws(model.eval(), 1, seed=0)
    with torch.no_grad(), draw:
        first, again = model(x[:1]), model(x)
    assert torch.allclose(first, again[:1])


def test_the_point_estimate_draws_nothing():
    first, second = (explain(Transformer(), PointEstimate(), seed=seed).absolute for seed in (0, 1))
    assert first.shape == second.shape == (1, 66)


def test_the_attention_dropout_of_hugging_face_models_is_drawn():
    pytest.importorskip("transformers", reason="transformers is not installed (pip install geh_explain[zoo])")
    from zoo import torchvision

    torchvision()  # transformers imports it, and does not survive operators that do not load
    from transformers import BertConfig, BertForSequenceClassification

    small = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**small, intermediate_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    model = BertForSequenceClassification(config).eval().double()
    tokens = torch.randint(0, 20, (6, 4), generator=torch.Generator().manual_seed(0))
    explainer = geh.GEHExplainer(model, "bert.embeddings", units=geh.units.Tokens(), output="probability")
    result = explainer.explain(tokens, target=0, groups=1, draws=4, progress=False)
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0
