"""Dropout that a model applies in train mode only is drawn, without other effects of train mode."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain._hashing import digest
from geh_explain.posterior import MCDropout, train_only


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
    """Drops in train mode, and changes something else there too."""

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


def test_attention_dropout_of_train_mode_is_drawn():
    result = explain_draws(Transformer(), random_points(8, 3, 4, seed=1), draws=6)
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0


@pytest.mark.parametrize("posterior", [None, MCDropout()], ids=["by default", "asked for"])
def test_dropout_behind_the_training_flag_of_the_whole_model_is_drawn(posterior):
    result = explain_draws(OnlyInTraining(), random_points(8, 3, seed=1), posterior=posterior, draws=6)
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0


def test_it_is_drawn_beside_other_dropout():
    model = Transformer(p=0.5, other=0.2)
    with_it = explain_draws(model, random_points(8, 3, 4, seed=1), draws=6).absolute
    model.attention.p = 0.0
    assert not np.allclose(with_it, explain_draws(model, random_points(8, 3, 4, seed=1), draws=6).absolute)


def test_batch_normalisation_keeps_its_statistics_and_modes_come_back():
    model = Transformer()
    model.train()
    model.attention.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    explain_draws(model, random_points(8, 3, 4, seed=1), posterior=MCDropout(), draws=6)
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
        result = explain_draws(model, random_points(8, 3, seed=1), draws=6)
    # Its other dropout is drawn.
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0
    assert float(model.count) == 0


def test_left_out_names_the_classes_whose_dropout_is_not_drawn():
    x = torch.randn(1, 3, dtype=torch.double)
    for model, names in ((TwoFaced("other"), ("TwoFaced",)), (TwoFaced("plain"), ()), (OnlyInTraining(), ())):
        model.eval()
        assert MCDropout().left_out(model, lambda model=model: model(x)) == names
        assert not model.training
    chosen = TwoFaced("other").eval()
    assert MCDropout([chosen.net[2]]).left_out(chosen, lambda: chosen(x)) == ()


def test_left_out_is_found_where_nothing_else_drops():
    model, x = TwoFaced("other").eval(), torch.randn(1, 3, dtype=torch.double)
    model.net[2].p = 0.0
    assert MCDropout().left_out(model, lambda: model(x)) == ("TwoFaced",)


def test_one_instance_serves_several_models():
    posterior = MCDropout()
    before = digest(posterior)
    with pytest.warns(geh.GEHWarning, match="TwoFaced drop in train mode only"):
        explain_draws(TwoFaced("other"), random_points(8, 3, seed=1), posterior=posterior, draws=6)
    # filterwarnings=error: a warning about the earlier model would fail here.
    shared = explain_draws(OnlyInTraining(), random_points(8, 3, seed=1), posterior=posterior, draws=6)
    assert shared.settings["warnings"] == []
    assert digest(posterior) == before
    assert vars(posterior) == {"modules": None}


def test_interleaved_draws_of_two_models_do_not_affect_each_other():
    posterior, x = MCDropout(), torch.randn(4, 3, dtype=torch.double)
    models = [OnlyInTraining().eval(), OnlyInTraining().eval()]

    def outputs(model, draws):
        with torch.no_grad(), next(draws):
            model(x[:1])
            return model(x)

    alone = [[outputs(model, draws) for _ in range(3)] for model in models for draws in [posterior.draws(model, 3, 0)]]
    both = [posterior.draws(model, 3, 0) for model in models]
    interleaved = [[outputs(model, draws) for model, draws in zip(models, both, strict=True)] for _ in range(3)]
    for number in range(3):
        assert torch.equal(interleaved[number][0], alone[0][number])
        assert torch.equal(interleaved[number][1], alone[1][number])


def test_batched_draws_find_it_without_a_draw_before():
    model, x = OnlyInTraining().eval(), torch.randn(4, 3, dtype=torch.double)
    single = []
    with torch.no_grad():
        for draw in MCDropout().draws(model, 3, seed=2):
            with draw:
                model(x[:1])
                single.append(model(x))
        with MCDropout().batched(model, range(3), seed=2):
            model(x[:1])
            batched = model(torch.cat([x] * 3))
        assert torch.equal(batched, torch.cat(single))
        assert not torch.equal(batched[:4], model(x))


def test_what_fails_in_train_mode_stays_in_eval():
    result = explain_draws(TwoFaced("fails"), random_points(8, 3, seed=1), draws=6)
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
    model, x = Transformer(), random_points(8, 3, 4, seed=1)
    first, second = (explain_point(model, x, seed=seed).signed for seed in (0, 1))
    assert len(first) == 1
    assert np.array_equal(first, second)


def test_the_attention_dropout_of_hugging_face_models_is_drawn():
    pytest.importorskip("transformers", reason="transformers is not installed (pip install geh_explain[zoo])")
    from zoo import torchvision

    torchvision()  # transformers imports it, and fails if its operators do not load
    from transformers import BertConfig, BertForSequenceClassification

    small = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**small, intermediate_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    model = BertForSequenceClassification(config).eval().double()
    tokens = torch.randint(0, 20, (6, 4), generator=torch.Generator().manual_seed(0))
    explainer = geh.GEHExplainer(model, "bert.embeddings", units=geh.units.Tokens(), output="probability")
    result = explainer.explain(tokens, target=0, groups=1, draws=4, progress=False)
    assert result.settings["posterior"] == "MCDropout()"
    assert np.ptp(result.absolute, axis=0).max() > 0


def test_the_search_is_made_once_in_a_run(monkeypatch):
    searched, search = [], train_only.find_train_only
    monkeypatch.setattr(train_only, "find_train_only", lambda *args: searched.append(args) or search(*args))
    explain_draws(OnlyInTraining(), random_points(8, 3, seed=1), posterior=None, draws=6)
    assert len(searched) == 1
