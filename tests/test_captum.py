"""Captum's interface: its own classes and those of the package on the same models, with the same arguments."""

import ast
import warnings
from functools import cache
from pathlib import Path

import captum.attr
import numpy as np
import pytest
import torch
from captum.attr import FeatureAblation, IntegratedGradients, LayerConductance, NoiseTunnel
from explaining import random_points
from networks import cnn
from reference import channel_directions, hidden_hessians
from reference_accounts import integrated_hessian
from state_comparison import model_state
from torch import nn

import geh_explain as geh
import geh_explain.captum
from geh_explain.captum import GroupExpectedHessian, InputHessian, IntegratedHessian, LayerHessian


@cache
def four_features():
    """Return six points of four features."""
    return random_points(6, 4)


def net(outputs=3):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, outputs)]
    return nn.Sequential(*layers).double().eval()


def hessians(function, x):
    """Return the Hessian of each row (N, D, D), by plain double backward, with a zero diagonal."""
    found = torch.stack([torch.autograd.functional.hessian(lambda row: function(row[None])[0], row) for row in x])
    return found * (1 - torch.eye(x.shape[1]))


def test_only_public_names_of_captum_are_imported():
    tree = ast.parse(Path(geh_explain.captum.__file__).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "captum" in node.module]
    assert [(node.module, {name.name for name in node.names} <= set(captum.attr.__all__)) for node in imported] == [
        ("captum.attr", True)
    ]


def test_they_are_captums_own_kind():
    model = net()
    for method in (InputHessian(model), LayerHessian(model, model[1]), GroupExpectedHessian(model)):
        assert isinstance(method, captum.attr.GradientAttribution)
        assert not method.has_convergence_delta()
        assert not method.multiplies_by_inputs
        assert method.attribute.__wrapped__ is not None
    assert isinstance(LayerHessian(model, model[1]), captum.attr.LayerAttribution)
    assert LayerHessian(model, model[1]).layer is model[1]


TARGETS = {
    "int": (2, [2] * 6),
    "tensor": (torch.tensor([0, 1, 2, 2, 1, 0]), [0, 1, 2, 2, 1, 0]),
    "one-element tensor": (torch.tensor(1), [1] * 6),
    "list": ([0, 1, 2, 2, 1, 0], [0, 1, 2, 2, 1, 0]),
}


@pytest.mark.parametrize("target", TARGETS)
def test_input_hessians_are_the_hessians_whatever_form_the_target_has(target):
    given, columns = TARGETS[target]
    model = net()
    found = InputHessian(model).attribute(four_features(), target=given)
    for row, column in enumerate(columns):
        wanted = hessians(lambda x, column=column: model(x)[:, column], four_features()[row : row + 1])[0]
        torch.testing.assert_close(found[row], wanted)
    # Captum takes the same target.
    assert IntegratedGradients(model).attribute(four_features(), target=given).shape == four_features().shape


@pytest.mark.parametrize("target", [(1, 0), [(0, 0), (1, 1), (0, 1), (1, 0), (0, 0), (1, 1)]], ids=["tuple", "tuples"])
def test_targets_of_outputs_with_more_dimensions(target):
    model = net(4)

    def forward(x):
        return model(x).reshape(-1, 2, 2)

    found = InputHessian(forward).attribute(four_features(), target=target)
    for row in range(6):
        i, j = target[row] if isinstance(target, list) else target
        wanted = hessians(lambda x, i=i, j=j: forward(x)[:, i, j], four_features()[row : row + 1])[0]
        torch.testing.assert_close(found[row], wanted)
    assert IntegratedGradients(forward).attribute(four_features(), target=target).shape == four_features().shape


def test_additional_arguments_go_to_the_model_as_in_captum():
    def forward(x, weights, power):
        return weights * x[:, 0] ** power * x[:, 1] + x[:, 2:].sum(1)

    weights = torch.arange(1.0, 7.0).double()
    found = InputHessian(forward).attribute(four_features(), additional_forward_args=(weights, 2))
    torch.testing.assert_close(found[:, 0, 1], weights * 2 * four_features()[:, 0])
    assert (found[:, 2:] == 0).all()
    attributions = IntegratedGradients(forward).attribute(four_features(), additional_forward_args=(weights, 2))
    assert attributions.shape == four_features().shape


def test_a_tuple_of_inputs_gives_a_tuple():
    def forward(a, b):
        return a[:, 0] * b[:, 1] + b[:, 0] * b[:, 1] ** 2

    a, b = four_features()[:, :1], four_features()[:, 1:3]
    of_a, of_b = InputHessian(forward).attribute((a, b))
    assert (of_a.shape, of_b.shape) == ((6, 1, 3), (6, 2, 3))
    torch.testing.assert_close(of_a[:, 0, 2], torch.ones(6).double())
    torch.testing.assert_close(of_b[:, 0, 2], 2 * b[:, 1])
    torch.testing.assert_close(of_b[:, 1, 0], torch.ones(6).double())
    assert len(IntegratedGradients(forward).attribute((a, b))) == 2
    assert isinstance(InputHessian(forward).attribute((a, b)), tuple)


def test_layer_hessians_are_those_of_the_part_above():
    model = net()
    found = LayerHessian(model, model[1]).attribute(four_features(), target=1)
    torch.testing.assert_close(found, hessians(lambda h: model[2:](h)[:, 1], model[:2](four_features()).detach()))
    by_name = LayerHessian(model, "1").attribute(four_features(), target=1)
    torch.testing.assert_close(by_name, found)
    by_function = LayerHessian(lambda x: 2 * model(x), model[1]).attribute(four_features(), target=1)
    torch.testing.assert_close(by_function, 2 * found)


def test_channels_and_patches_are_units_of_images():
    net, x = cnn(), random_points(5, 1, 6, 6)
    maps = net[0](x).detach()
    of_channels = hidden_hessians(lambda maps: net[1:](maps)[:, 0], maps, channel_directions((3, 4, 4), axis=0))
    patches = torch.zeros(4, 1, 6, 6)
    for unit, (row, column) in enumerate(((0, 0), (0, 3), (3, 0), (3, 3))):
        patches[unit, :, row : row + 3, column : column + 3] = 1
    of_patches = hidden_hessians(lambda x: net(x)[:, 0], x, patches)
    for found, local in (
        (LayerHessian(net, net[0]).attribute(x, target=0), of_channels),
        (InputHessian(net, units=geh.units.Patches(3)).attribute(x, target=0), of_patches),
    ):
        off_diagonal = local * (1 - np.eye(local.shape[1]))
        assert np.abs(off_diagonal).max() > 1e-4
        np.testing.assert_allclose(found.numpy(), off_diagonal, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["smoothgrad", "smoothgrad_sq", "vargrad"])
def test_noise_tunnels_average_hessians(kind):
    def forward(x):
        return x[:, 0] * x[:, 1] ** 2 + x[:, 2] * x[:, 3]

    torch.manual_seed(0)
    found = NoiseTunnel(InputHessian(forward)).attribute(four_features(), nt_type=kind, nt_samples=2000, stdevs=0.5)
    mean, variance = 2 * four_features()[:, 1], 4 * 0.25  # of 2 (x1 + noise)
    wanted = {"smoothgrad": mean, "smoothgrad_sq": mean**2 + variance, "vargrad": 0 * mean + variance}[kind]
    torch.testing.assert_close(found[:, 0, 1], wanted, atol=0.35, rtol=0.1)
    constant = {"smoothgrad": 1.0, "smoothgrad_sq": 1.0, "vargrad": 0.0}[kind]
    torch.testing.assert_close(found[:, 2, 3], torch.full((6,), constant).double(), atol=1e-6, rtol=0)


def test_a_noise_tunnel_takes_layers_targets_and_partitions():
    model = net()
    torch.manual_seed(0)
    method = NoiseTunnel(LayerHessian(model, model[1]))
    found = method.attribute(
        four_features(), nt_samples=8, nt_samples_batch_size=3, stdevs=0.0, target=torch.tensor([0, 1, 2, 2, 1, 0])
    )
    plain = LayerHessian(model, model[1]).attribute(four_features(), target=torch.tensor([0, 1, 2, 2, 1, 0]))
    torch.testing.assert_close(found, plain)


def test_one_workflow_with_captums_own_methods():
    model = net()
    before = model_state(model)
    gradients = IntegratedGradients(model).attribute(four_features(), target=0)
    conductance = LayerConductance(model, model[1]).attribute(four_features(), target=0)
    ablation = FeatureAblation(model).attribute(four_features(), target=0)
    pairs = InputHessian(model).attribute(four_features(), target=0)
    hidden = LayerHessian(model, model[1]).attribute(four_features(), target=0)
    mean, std = GroupExpectedHessian(model).attribute(four_features(), target=0, groups=2, draws=20, return_std=True)
    assert gradients.shape == ablation.shape == four_features().shape
    assert conductance.shape == (6, 5)
    assert (pairs.shape, hidden.shape, mean.shape, std.shape) == ((6, 4, 4), (6, 5, 5), (4, 4), (4, 4))
    assert model_state(model) == before
    again = LayerConductance(model, model[1]).attribute(four_features(), target=0)
    torch.testing.assert_close(again, conductance)


def test_global_measures_are_those_of_the_explainer():
    model = net()
    method = GroupExpectedHessian(model, model[1])
    found = method.attribute(four_features(), 1, measure="aeh", groups=2, draws=10)
    wanted = geh.GEHExplainer(model, "1").explain(four_features(), 1, groups=2, draws=10, progress=False)
    np.testing.assert_allclose(found.numpy(), wanted.aeh.mean)
    assert isinstance(method.explain(four_features(), 1, groups=2, draws=10), geh.Interactions)


def test_gradients_that_are_off_and_inputs_that_want_them_do_not_matter():
    model = net()
    wanted = InputHessian(model).attribute(four_features(), target=0)
    x = four_features().clone().requires_grad_()
    with torch.no_grad():
        found = InputHessian(model).attribute(x, target=0)
    torch.testing.assert_close(found, wanted)
    assert not found.requires_grad
    assert x.grad is None


def test_wrong_arguments_are_named():
    with pytest.raises(geh.GEHError, match="inputs is a list; give a tensor"):
        InputHessian(net()).attribute([1, 2], target=0)
    with pytest.raises(geh.GEHError, match="target"):
        InputHessian(net()).attribute(four_features())
    with pytest.raises(geh.GEHError, match="is not part of the model"):
        LayerHessian(net(), nn.Linear(2, 2))
    with pytest.raises(geh.GEHError, match="measure='hessian' is unknown"):
        GroupExpectedHessian(net()).attribute(four_features(), 0, measure="hessian", groups=2, draws=2)


def relu_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1)).double()


@pytest.mark.parametrize("reference", [None, "given"])
@pytest.mark.parametrize("method", ["inputs", "layer", "integrated"])
def test_an_example_alone_and_in_a_wide_batch_is_the_same(method, reference):
    model = relu_net()
    data = None if reference is None else random_points(50, 4, seed=3)
    made = {
        "inputs": lambda: InputHessian(model, data=data),
        "layer": lambda: LayerHessian(model, model[0], data=data),
        "integrated": lambda: IntegratedHessian(model, data=data),
    }[method]()
    row = random_points(1, 4, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        alone = made.attribute(row)
        together = made.attribute(torch.cat([40 * random_points(6, 4, seed=2), row]))
    assert alone.abs().max() > 1e-4
    torch.testing.assert_close(together[-1:], alone, rtol=1e-9, atol=1e-12)


def test_a_reference_sets_the_sharpness_as_its_explanation_does():
    model, data = relu_net(), random_points(50, 4, seed=3)
    explained = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate()).explain(
        data, groups=np.arange(50), progress=False
    )
    found = InputHessian(model, data=data).attribute(data)
    i, j = explained.pairs.ends
    np.testing.assert_allclose(found[:, i, j].numpy(), explained.signed[0], rtol=1e-9, atol=1e-12)


def test_differences_need_a_reference():
    def jump(x):
        return (x[:, 0] > 0).double() * x[:, 1]

    with pytest.raises(geh.GEHError, match=r"engine='difference' steps by the spread .* pass data="):
        InputHessian(jump, engine="difference").attribute(four_features())
    with pytest.raises(geh.GEHError, match=r"smooth=Step.* pass data="):
        InputHessian(relu_net(), smooth=geh.engines.Step(0.5)).attribute(four_features())
    method = InputHessian(lambda x: x[:, 0] * x[:, 1], engine="difference", data=random_points(20, 4))
    torch.testing.assert_close(method.attribute(four_features())[:, 0, 1], torch.ones(6).double())


def test_integrated_hessians_are_those_of_the_paper_and_sum_to_the_difference():
    model, b = net(1), random_points(1, 4, seed=5)
    found = IntegratedHessian(model).attribute(four_features(), b)
    for row, matrix in zip(four_features(), found, strict=True):
        wanted = integrated_hessian(lambda x: model(x)[:, 0], row, b[0])
        np.testing.assert_allclose(matrix.numpy(), wanted, rtol=0, atol=1e-8)
    total = (model(four_features()) - model(b))[:, 0]
    torch.testing.assert_close(found.sum((1, 2)), total.detach())
    gradients = IntegratedGradients(model).attribute(four_features(), b, n_steps=100)
    torch.testing.assert_close(found.sum(2), gradients, rtol=0, atol=1e-8)


def test_baselines_have_the_forms_of_captum():
    model, method = net(1), IntegratedHessian(net(1))
    x = four_features()

    def totals(baselines):
        return (model(x) - model(baselines))[:, 0].detach()

    torch.testing.assert_close(method.attribute(x).sum((1, 2)), totals(torch.zeros_like(x)))
    torch.testing.assert_close(method.attribute(x, 0.5).sum((1, 2)), totals(torch.full_like(x, 0.5)))
    torch.testing.assert_close(method.attribute(x, x.flip(0)).sum((1, 2)), totals(x.flip(0)))
    torch.testing.assert_close(method.attribute(x, x[:1], n_steps=20).sum((1, 2)), totals(x[:1].expand(6, 4)))
    two = IntegratedHessian(lambda a, b: model(torch.cat([a, b], 1)))
    first, second = two.attribute((x[:, :1], x[:, 1:]), (0.5, x[:1, 1:]))
    assert (first.shape, second.shape) == ((6, 1, 4), (6, 3, 4))
    ends = torch.cat([torch.full((6, 1), 0.5).double(), x[:1, 1:].expand(6, 3)], 1)
    torch.testing.assert_close(first.sum((1, 2)) + second.sum((1, 2)), totals(ends))
    with pytest.raises(geh.GEHError, match=r"baselines has shape \(2, 4\); give one row of shape"):
        method.attribute(x, x[:2])
    with pytest.raises(geh.GEHError, match="baselines: a str is not supported"):
        method.attribute(x, "zeros")
    with pytest.raises(geh.GEHError, match="baselines=nan must be finite"):
        method.attribute(x, float("nan"))
    with pytest.raises(geh.GEHError, match="baselines has NaN or infinite values"):
        method.attribute(x, x / 0)
    with pytest.raises(geh.GEHError, match="n_steps=0"):
        method.attribute(x, n_steps=0)


def test_noise_tunnels_average_integrated_hessians_and_refuse_global_measures():
    method = IntegratedHessian(lambda x: 4 * x[:, 0] * x[:, 1] + x[:, 2])
    assert method.multiplies_by_inputs
    torch.manual_seed(0)
    found = NoiseTunnel(method).attribute(four_features(), nt_samples=30, stdevs=0.02, baselines=0)
    wanted = four_features()[:, 0] * four_features()[:, 1]
    torch.testing.assert_close(found[:, 0, 1], wanted, atol=0.03, rtol=0)
    with pytest.raises(geh.GEHError, match="NoiseTunnel averages attributions of single examples"):
        NoiseTunnel(GroupExpectedHessian(net())).attribute(four_features(), nt_samples=2, target=0)


def test_layers_can_be_explained_at_their_input():
    model = net()
    before = model_state(model)
    at_input = LayerHessian(model, model[2]).attribute(four_features(), target=1, attribute_to_layer_input=True)
    at_output = LayerHessian(model, model[1]).attribute(four_features(), target=1)
    torch.testing.assert_close(at_input, at_output)
    assert model_state(model) == before


@pytest.mark.parametrize("kind", [InputHessian, IntegratedHessian])
def test_a_reference_has_rows_like_the_inputs(kind):
    with pytest.raises(geh.GEHError, match=r"data: one row has shape \(3,\), and one of inputs \(4,\)"):
        kind(relu_net(), data=random_points(5, 3)).attribute(four_features())
