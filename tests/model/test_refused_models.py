"""What is refused as a model, with what to pass instead."""

import pathlib

import pytest
import torch
from expected_errors import Net, cases, refused, valid_points
from explaining import explain_draws, explain_point
from sklearn.preprocessing import StandardScaler
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


def made_of(model):
    return lambda: geh.GEHExplainer(model)


@cases(
    {
        "transformer": (made_of(StandardScaler()), TypeError, "model=StandardScaler()", "must have predict"),
        "state_dict": (made_of(Net().state_dict()), TypeError, "OrderedDict", "net.load_state_dict(model)"),
        "training state": (made_of({"net": Net().state_dict()}), TypeError, "load_state_dict(model['net'])"),
        "array": (made_of(valid_points().numpy()), TypeError, "ndarray of shape (24, 3)", "network first"),
        "tensor": (made_of(valid_points()), TypeError, "Tensor of shape (24, 3)", "network first"),
        "path": (made_of(pathlib.Path("net.pt")), TypeError, "net.pt", "torch.load"),
        "several": (made_of([Net(), Net()]), TypeError, "model=list", "posterior=Ensemble"),
        "list of modules": (made_of(nn.ModuleList([Net()])), TypeError, "model", "ModuleList", "no forward pass"),
        "lazy": (made_of(nn.Sequential(nn.LazyLinear(2))), RuntimeError, "'0' (LazyLinear)", "model(inputs) once"),
        "lazy buffers": (
            made_of(nn.LazyBatchNorm1d(affine=False)),
            *(RuntimeError, "LazyBatchNorm1d", "model(inputs) once"),
        ),
    }
)
def test_what_is_no_model_is_refused_with_the_way_out(call, kind, words):
    with refused(kind, *words):
        call()


def test_a_lazy_model_is_explained_once_it_was_called():
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 1))
    model(valid_points())
    assert explain_point(model, valid_points()).geh.mean.any()


# Quantised models


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_a_quantised_model_is_refused_by_the_name_of_its_layer(dtype):
    model = torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=dtype)
    with refused(TypeError, "layer 'encoder'", "quantised", "before quantisation"):
        geh.GEHExplainer(model)


# TorchScript


def scripted(model):
    return torch.jit.script(model.eval())


def with_dropout():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 1))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("compile_model", [scripted, lambda model: torch.jit.trace(model, valid_points())])
def test_layers_of_a_scripted_model_are_refused(compile_model):
    model = compile_model(Net())
    with refused(TypeError, "layer='act'", "before torch.jit.script"):
        geh.GEHExplainer(model, "act")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [Net, with_dropout])
def test_a_scripted_model_has_a_point_estimate_as_default_posterior(make):
    model = make()
    with pytest.warns(geh.GEHWarning) as caught:
        result = explain_draws(scripted(model), valid_points())
    assert any("scripted" in str(warning.message) for warning in caught)
    assert any("point estimate" in str(warning.message) for warning in caught)
    expected = explain_point(model, valid_points())
    assert result.signed[0] == pytest.approx(expected.signed[0], rel=1e-4, abs=1e-7)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_mc_dropout_of_a_scripted_model_is_refused():
    with refused(RuntimeError, "posterior=MCDropout()", "scripted", "before torch.jit.script"):
        explain_draws(scripted(with_dropout()), valid_points(), posterior=MCDropout())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_frozen_model_is_refused():
    with refused(TypeError, "model", "frozen"):
        geh.GEHExplainer(torch.jit.freeze(scripted(Net())))
