"""Unusual forwards: layers that return several tensors or run several times, keyword arguments, half precision."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points, uniform_points
from reference import mean_hessian
from torch import Tensor, nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()
Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


class Several(nn.Module):
    """Has a layer that returns two tensors in a container; the output depends on both."""

    def __init__(self, pack, unpack):
        super().__init__()
        self.both, self.unpack = Packed(pack), unpack

    def forward(self, x):
        first, second = self.unpack(self.both(x))
        return (first.prod(1) + second.sum(1) ** 2)[:, None]


class Packed(nn.Module):
    def __init__(self, pack):
        super().__init__()
        self.pack = pack

    def forward(self, x):
        return self.pack(x.sin(), x.cos())


KINDS = {
    "tuple": (lambda a, b: (a, b), lambda out: out, 0, 1),
    "list": (lambda a, b: [a, b], lambda out: out, 0, 1),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda out: (out["a"], out["b"]), "a", "b"),
    "namedtuple": (Pair, lambda out: (out.first, out.second), 0, 1),
    "dataclass": (Output, lambda out: (out.logits, out.hidden), "logits", "hidden"),
    "nested": (lambda a, b: (a, {"deep": b}), lambda out: (out[0], out[1]["deep"]), 0, (1, "deep")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_picked_from_any_container_that_a_layer_returns(kind):
    pack, unpack, first, second = KINDS[kind]
    x = random_points(6, 3)
    of_first = explain_point(Several(pack, unpack), x, layer=geh.Layer("both", pick=first)).geh.mean
    of_second = explain_point(Several(pack, unpack), x, layer=geh.Layer("both", pick=second)).geh.mean
    assert of_first == pytest.approx(mean_hessian(lambda u: u.prod(1), x.sin()), abs=1e-12)
    assert of_second == pytest.approx(np.full((3, 3), 2.0) - 2 * np.eye(3), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_pick_the_choices_are_listed(kind):
    pack, unpack, *_ = KINDS[kind]
    with pytest.raises(geh.GEHError, match=r"layer='both'.*2 tensors.*\(6, 3\).*Layer\('both', pick="):
        explain_point(Several(pack, unpack), random_points(6, 3), layer="both")
    with pytest.raises(geh.GEHError, match=r"layer='both'.*without 'nothing'.*\(6, 3\)"):
        explain_point(Several(pack, unpack), random_points(6, 3), layer=geh.Layer("both", pick="nothing"))


def test_a_container_with_a_single_tensor_needs_no_pick():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrapped = Packed(lambda a, b: {"only": a, "mask": None})

        def forward(self, x):
            return self.wrapped(x)["only"].prod(1)

    x = random_points(6, 3)
    assert explain_point(Model(), x, layer="wrapped").geh.mean == pytest.approx(
        mean_hessian(lambda u: u.prod(1), x.sin()), abs=1e-12
    )


class Twice(nn.Module):
    """Calls one layer twice: y = f(f(x))."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()

    def forward(self, x):
        return self.layer(self.layer(x)).prod(1)


def test_one_call_of_a_layer_that_is_called_twice_can_be_chosen():
    model, x = Twice(), random_points(5, 3)
    once = model.layer(x).detach()
    first = mean_hessian(lambda u: model.layer(u).prod(1), once)
    second = mean_hessian(lambda u: u.prod(1), model.layer(once).detach())
    assert explain_point(model, x, layer=geh.Layer("layer", call=0)).geh.mean == pytest.approx(first, abs=1e-12)
    assert explain_point(model, x, layer=geh.Layer("layer", call=1)).geh.mean == pytest.approx(second, abs=1e-12)
    with pytest.raises(geh.GEHError, match=r"call=2.*called 2 time"):
        explain_point(model, x, layer=geh.Layer("layer", call=2))


def test_by_default_all_calls_shift_together_with_a_warning():
    model, x = Twice(), random_points(5, 3)
    once = model.layer(x).detach()
    expected = mean_hessian(lambda t: (model.layer(once + t) + t).prod(1), torch.zeros_like(once))
    with pytest.warns(geh.GEHWarning, match=r"'layer' is called 2 times.*call=0"):
        result = explain_point(model, x, layer="layer")
    assert result.geh.mean == pytest.approx(expected, abs=1e-12)


def test_an_in_place_activation_after_the_layer_does_not_change_the_scores():
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.ELU(inplace=True), nn.Linear(4, 1), nn.Sigmoid()]
    model, x = nn.Sequential(*layers).double(), random_points(6, 3)
    expected = mean_hessian(lambda u: layers[3](layers[2](nn.functional.elu(u)))[:, 0], layers[0](x).detach())
    assert explain_point(model, x, layer="0").geh.mean == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_explained_at_their_outputs_and_from_below(kind):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.rnn = nn.Embedding(7, 3).double(), kind(3, 4, batch_first=True).double()

        def forward(self, ids):
            return self.rnn(self.embed(ids))[0][:, -1].prod(1)

    model, ids = Recurrent(), torch.arange(24).reshape(6, 4) % 7
    top = explain_point(model, ids, layer="rnn", units=geh.units.Channels()).geh.mean
    states = model.rnn(model.embed(ids))[0].detach()
    assert top == pytest.approx(mean_hessian(lambda u: u.prod(1), states[:, -1]), abs=1e-12)
    below = explain_point(model, ids, layer="embed", units=geh.units.Tokens()).geh.mean
    embedded = model.embed(ids).detach()
    assert below == pytest.approx(_token_hessian(model, embedded), abs=1e-12)


def _token_hessian(model, embedded) -> np.ndarray:
    """The mean Hessian along tokens, from the full one: sums over the features of each pair of tokens."""
    total = 0
    for row in embedded:
        full = torch.autograd.functional.hessian(lambda e: model.rnn(e[None])[0][0, -1].prod(), row)
        total = total + full.sum(dim=(1, 3)).numpy()
    return np.abs(total / len(embedded)) * ~np.eye(embedded.shape[1], dtype=bool)


def test_recurrent_layers_run_without_cudnn_and_it_is_switched_on_again():
    seen = []

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True).double()

        def forward(self, x):
            seen.append(torch.backends.cudnn.enabled)
            return self.rnn(x)[0][:, -1].prod(1)

    before = torch.backends.cudnn.enabled
    explain_point(Recurrent(), random_points(4, 2, 3), units=geh.units.Tokens())
    assert seen
    assert not any(seen)
    assert torch.backends.cudnn.enabled == before


def test_token_ids_at_the_inputs_point_to_the_embedding():
    with pytest.raises(geh.GEHError, match="embedding"):
        explain_point(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()), torch.ones(4, 2, dtype=torch.long), target=0)


def test_keyword_arguments_and_dictionaries_of_inputs_reach_the_model():
    class Model(nn.Module):
        def forward(self, x, *, weight, power=1.0):
            return (x * weight).prod(1) * power

    x, weight = random_points(6, 3), random_points(6, 1).abs()
    plain = explain_point(lambda x, w: (x * w).prod(1) * 2, x, args=weight)
    named = explain_point(Model(), x, args={"weight": weight, "power": 2.0})
    assert np.array_equal(named.signed, plain.signed)
    both = explain_point(lambda a, b: (a * b).prod(1), {"a": x, "b": x + 1})
    apart = explain_point(lambda a, b: (a * b).prod(1), (x, x + 1))
    assert np.array_equal(both.signed, apart.signed)


def test_a_compiled_model_is_explained_as_what_it_was_compiled_from():
    model, x = Twice(), random_points(5, 3)
    compiled = torch.compile(model)
    first = explain_point(model, x, layer=geh.Layer("layer", call=0))
    assert np.array_equal(explain_point(compiled, x, layer=geh.Layer("layer", call=0)).signed, first.signed)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_scripted_model_is_explained_with_a_warning():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), random_points(6, 3)
    with pytest.warns(geh.GEHWarning, match="scripted"):
        result = explain_point(torch.jit.script(model), x)
    assert result.geh.mean == pytest.approx(explain_point(model, x).geh.mean)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_explained_in_single_precision_and_restored(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    x = random_points(6, 3).to(dtype)
    with pytest.warns(geh.GEHWarning, match=r"float16.*explained in torch.float32"):
        result = explain_point(model, x)
    for name, value in model.state_dict().items():
        assert value.data_ptr() == before[name][0]
        assert torch.equal(value, before[name][1])
    assert result.settings["dtype"] == "float32"
    assert np.array_equal(result.signed, explain_point(model.float(), x.float()).signed)


def test_a_projection_that_attention_never_calls_points_to_the_attention():
    model = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with pytest.raises(geh.GEHError, match=r"take layer='self_attn'"):
        explain_point(model, torch.randn(3, 5, 4), layer="self_attn.out_proj", target=(0, 0))


def test_a_layer_whose_calls_differ_in_shape_asks_for_one_of_them():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow, self.act = nn.Linear(3, 5), nn.Linear(5, 2), nn.Tanh()

        def forward(self, x):
            return self.act(self.narrow(self.act(self.wide(x)))).prod(1)

    model, x = Shared().double(), uniform_points(20, 3)
    with pytest.raises(geh.GEHError, match=r"\(5,\) and \(2,\).*Layer\('act', call=0\)"):
        explain_point(model, x, layer="act")
    assert len(explain_point(model, x, layer=geh.Layer("act", call=1)).names) == 2
