"""Exceptions of the model itself, in words: the inputs, the layer that failed, and what to do."""

import pandas as pd
import pytest
import torch
from captum.testing.helpers.basic_models import BasicModel_MultiLayer_TupleInput
from expected_errors import Applied, Net, cases, refused, valid_points
from explaining import explain_point, random_points
from torch import nn

import geh_explain as geh

pytestmark = pytest.mark.usefixtures("seeded")


def called(make, inputs, target=None, args=None, **options):
    return lambda: explain_point(make(), inputs, target, args, **options)


class Masked(nn.Module):
    def forward(self, x, mask):
        return (x * mask).prod(1)


def convolution():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 1))


def embedding():
    return nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(6, 1))


def net_in_a_callable():
    net = Net()
    return lambda x: net(x)


class Slope(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, x):
        hidden = self.net(x)
        return torch.autograd.grad(hidden.exp().sum(), hidden, create_graph=True)[0]


def takes_frames():
    return lambda x: x.columns


@cases(
    {
        "width": (
            called(Net, torch.ones(9, 4)),
            *(RuntimeError, "inputs", "(4,)", "layer 'encoder' (Linear(in_features=3", "trained"),
        ),
        "width at a layer": (
            called(Net, torch.ones(9, 4), layer="act"),
            *(RuntimeError, "inputs", "(4,)", "layer 'encoder' (Linear(in_features=3"),
        ),
        "channels": (
            called(convolution, torch.ones(4, 1, 6, 6)),
            *(RuntimeError, "inputs", "(1, 6, 6)", "layer '0' (Conv2d(3, 4", "3 channels"),
        ),
        "size of images": (
            called(convolution, torch.ones(4, 3, 9, 9)),
            *(RuntimeError, "inputs", "(3, 9, 9)", "layer '2' (Linear(in_features=64"),
        ),
        "unknown token": (
            called(embedding, torch.full((5, 2), 9), layer="0"),
            *(RuntimeError, "inputs", "torch.int64", "layer '0' (Embedding(4, 3)) raised IndexError"),
        ),
        "numbers as tokens": (
            called(embedding, torch.ones(5, 2), layer="0"),
            *(RuntimeError, "inputs", "torch.float32", "layer '0' (Embedding(4, 3))"),
        ),
        "double precision in a callable": (
            called(net_in_a_callable, valid_points().double()),
            *(RuntimeError, "inputs", "torch.float64", "Linear(in_features=3", "inputs.float()"),
        ),
        "frame in a callable": (
            called(net_in_a_callable, pd.DataFrame(valid_points().double().numpy())),
            *(RuntimeError, "inputs", "torch.float64", "inputs.float()"),
        ),
        "own check of the model": (
            called(takes_frames, valid_points()),
            *(RuntimeError, "inputs", "AttributeError", "columns"),
        ),
        "gradients in the forward pass": (
            called(Slope, valid_points()),
            *(RuntimeError, "does not require grad", "torch.enable_grad()"),
        ),
        "argument missing": (
            called(Masked, valid_points()),
            *(TypeError, "mask", "additional_forward_args="),
        ),
        "argument too long": (
            called(Masked, valid_points(), args=torch.ones(7, 3)),
            *(RuntimeError, "additional_forward_args", "as many entries as there are rows"),
        ),
        "sparse argument": (
            called(Masked, valid_points(), args=valid_points().to_sparse()),
            *(RuntimeError, "additional_forward_args", "as many entries as there are rows"),
        ),
        "argument too many": (
            called(Net, valid_points(), args=1.0),
            *(TypeError, "positional", "additional_forward_args="),
        ),
        "unknown name": (
            called(Net, {"z": valid_points()}),
            *(TypeError, "unexpected keyword argument 'z'", "names of model.forward"),
        ),
        "one tuple": (
            called(BasicModel_MultiLayer_TupleInput, (valid_points(),) * 3, 0),
            *(TypeError, "3 tensors", "(3,)", "as in Captum", "lambda *tensors: model(tensors)"),
        ),
    }
)
def test_inputs_that_the_model_does_not_take_are_named(call, kind, words):
    with refused(kind, *words):
        call()


def test_a_model_that_takes_one_tuple_is_explained_through_the_suggested_callable():
    model = BasicModel_MultiLayer_TupleInput()
    inputs = tuple(random_points(20, 3, seed=seed, dtype=torch.float).abs() for seed in range(3))
    result = explain_point(lambda *tensors: model(tensors)[:, 0].exp(), inputs)
    assert len(result.names) == 9
    assert result.geh.mean.any()


def test_exceptions_of_other_types_are_the_models_own():
    def broken(x):
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        explain_point(broken, valid_points())


@cases(
    {
        "index": (lambda out: out[:, 5], RuntimeError, "output=", "IndexError", "Tensor of shape (8, 1)"),
        "attribute": (lambda out: out.logits, RuntimeError, "output=", "AttributeError", "Tensor of shape"),
        "type": (lambda out: out + "1", TypeError, "output=", "TypeError"),
    }
)
def test_a_callable_output_that_fails_is_named(call, kind, words):
    with refused(kind, *words):
        explain_point(Net(), valid_points(), output=call)


def test_a_callable_output_with_a_wrong_key_is_told_the_keys():
    with refused(RuntimeError, "output=", "KeyError: 'logit'", "keys ['scores']"):
        explain_point(lambda x: {"scores": x.prod(1)}, valid_points(), output=lambda out: out["logit"])


def test_held_out_rows_are_named_by_their_argument():
    with refused(RuntimeError, "evidence: the model does not take rows of shape (4,)"):
        explain_point(Net(), valid_points(), evidence=(random_points(9, 4), torch.ones(9)))


def test_the_original_exception_is_the_cause():
    with pytest.raises(geh.GEHError) as caught:
        explain_point(Net(), random_points(9, 4))
    assert type(caught.value.__cause__) is RuntimeError


@cases(
    {
        "complex": (lambda x: torch.fft.fft(x).prod(1), TypeError, "complex64", "output=torch.abs"),
        "sparse": (lambda x: x.prod(1, keepdim=True).to_sparse(), TypeError, "sparse", "to_dense()"),
        "classes in an array": (lambda x: x.detach().numpy().argmax(1), TypeError, "int64", "predict_proba"),
    }
)
def test_outputs_that_cannot_be_explained_are_refused(call, kind, words):
    with refused(kind, *words):
        explain_point(Applied(call), valid_points())
