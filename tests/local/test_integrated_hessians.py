"""Accounts of smooth networks by integrated Hessians: against dense quadrature, and completeness."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from explaining import point_explainer, random_points
from reference_accounts import integrated_hessian
from torch import nn

import geh_explain as geh


def smooth_net(inputs=4, outputs=1, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 6), nn.GELU(), nn.Linear(6, outputs)]
    return nn.Sequential(*layers).double().eval()


def ends(inputs=4):
    """Return a row and a baseline."""
    x, b = random_points(2, inputs, seed=1) * torch.tensor([[1.5], [0.7]])
    return x, b


def check_complete(local, abs_=1e-9):
    parts = local.main["mean"].sum() + local.pairs["mean"].sum()
    assert local.reference + parts + local.remainder == pytest.approx(local.prediction, abs=1e-12)
    assert abs(local.remainder) < abs_


def test_it_agrees_with_dense_quadrature_and_is_complete():
    net, (x, b) = smooth_net(), ends()
    local = point_explainer(net).explain_row(x, baseline=b, progress=False)
    expected = integrated_hessian(lambda x: net(x)[:, 0], x, b)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(local.matrix, expected, rtol=0, atol=1e-8)
    check_complete(local, 1e-10)
    assert local.method == "integrated Hessians"
    assert local.prediction == pytest.approx(net(x[None]).item())
    assert local.reference == pytest.approx(net(b[None]).item())


def test_row_sums_are_integrated_gradients():
    net, (x, b) = smooth_net(), ends()
    local = point_explainer(net).explain_row(x, baseline=b, progress=False)
    gradients = IntegratedGradients(net).attribute(x[None], b[None], n_steps=100)
    np.testing.assert_allclose(local.matrix.sum(axis=1), gradients[0].numpy(), rtol=0, atol=1e-9)


def test_a_product_is_half_pair_and_a_quarter_each_main_effect():
    local = point_explainer(lambda x: 3 * x[:, 0] * x[:, 1]).explain_row(
        torch.tensor([2.0, 5.0]), baseline=0, progress=False
    )
    assert local.pairs["mean"].tolist() == pytest.approx([15.0], rel=1e-5)
    assert local.main["mean"].tolist() == pytest.approx([7.5, 7.5], rel=1e-5)


def test_an_additive_model_has_main_effects_only():
    x, b = ends()
    local = point_explainer(lambda x: x.pow(3).sum(1)).explain_row(x, baseline=b, progress=False)
    np.testing.assert_allclose(np.diag(local.matrix), (x**3 - b**3).numpy(), atol=1e-9)
    assert (local.pairs["mean"] == 0).all()


def test_probabilities_targets_and_forward_arguments():
    net, (x, b) = smooth_net(outputs=3), ends()

    class Scaled(nn.Module):
        def forward(self, x, scale, power):
            return net(x * scale) ** power

    local = point_explainer(Scaled(), output="probability").explain_row(
        x, 2, (torch.tensor([[1.0, 2.0, 1.0, 0.5]]).double(), 2), baseline=b, progress=False
    )
    scale = torch.tensor([1.0, 2.0, 1.0, 0.5]).double()
    expected = integrated_hessian(lambda x: (net(x * scale) ** 2).softmax(1)[:, 2], x, b)
    np.testing.assert_allclose(local.matrix, expected, rtol=0, atol=1e-8)
    check_complete(local)


def test_a_hidden_layer_goes_from_its_activations_at_the_baseline_to_those_at_the_row():
    net, (x, b) = smooth_net(), ends()
    lower, upper = net[:2], net[2:]
    local = point_explainer(net, "1").explain_row(x, baseline=b, progress=False)
    expected = integrated_hessian(lambda h: upper(h)[:, 0], lower(x[None])[0].detach(), lower(b[None])[0].detach())
    np.testing.assert_allclose(local.matrix, expected, rtol=0, atol=1e-8)
    check_complete(local)
    data = random_points(20, 4)
    of_mean = point_explainer(net, "1").explain_row(x, data=data, progress=False)
    assert of_mean.reference == pytest.approx(upper(lower(data).mean(0)).item())
    of_zeros = point_explainer(net, "1").explain_row(x, baseline="zeros", progress=False)
    assert of_zeros.reference == pytest.approx(upper(torch.zeros(8).double()).item())


def test_several_rows_at_a_hidden_layer_are_explained_each_by_itself():
    net, rows = smooth_net(), random_points(3, 4)
    together = point_explainer(net, "1").explain_row(rows, baseline=0, progress=False)
    for row, local in zip(rows, together, strict=True):
        upper, end = net[2:], net[:2](row[None])[0].detach()
        expected = integrated_hessian(lambda h, upper=upper: upper(h)[:, 0], end, torch.zeros(8).double())
        np.testing.assert_allclose(local.matrix, expected, rtol=0, atol=1e-8)
        check_complete(local)


def test_channels_move_along_the_differences_of_all_their_positions():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1)
    ).double()
    x, b = random_points(2, 1, 4, 4)
    local = point_explainer(net, "1").explain_row(x[None], baseline=b[None], progress=False)
    at_x, at_b = net[:2](x[None]).detach(), net[:2](b[None]).detach()

    def of_positions(u):
        return net[2:](at_b + u[:, :, None, None] * (at_x - at_b))[:, 0]

    expected = integrated_hessian(of_positions, torch.ones(3), torch.zeros(3))
    np.testing.assert_allclose(local.matrix, expected, rtol=0, atol=1e-8)
    check_complete(local)


def test_a_group_of_columns_is_the_sum_over_its_members():
    net, (x, b) = smooth_net(), ends()
    groups = geh.units.FeatureGroups({"first": [0, 2], "last": [3]}, rest=True)
    local = point_explainer(net, units=groups).explain_row(x, baseline=b, progress=False)
    columns = integrated_hessian(lambda x: net(x)[:, 0], x, b)
    together = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    np.testing.assert_allclose(local.matrix, together @ columns @ together.T, rtol=0, atol=1e-8)
    assert local.names == ["first", "last", "x1"]
    check_complete(local)


def test_what_belongs_to_no_unit_keeps_the_values_of_the_row():
    net, (x, b) = smooth_net(), ends()
    local = point_explainer(net, units=geh.units.Subset([0, 3])).explain_row(x, baseline=b, progress=False)
    mixed = torch.stack([b[0], x[1], x[2], b[3]])
    assert local.reference == pytest.approx(net(mixed[None]).item())
    full = integrated_hessian(lambda x: net(x)[:, 0], x, mixed)
    np.testing.assert_allclose(local.matrix, full[[0, 3]][:, [0, 3]], rtol=0, atol=1e-8)
    check_complete(local)


def test_units_that_share_numbers_share_their_differences():
    class Overlapping(geh.units.Units):
        def count(self, shape):
            return 2

        def shift(self, t, shape):
            return torch.stack([t[:, 0], t.sum(1), t[:, 1], t[:, 1]], dim=1)

    net, (x, b) = smooth_net(), ends()
    for engine in ("auto", "difference"):
        local = point_explainer(net, units=Overlapping(), engine=engine).explain_row(x, baseline=b, progress=False)
        assert local.reference == pytest.approx(net(b[None]).item())
        check_complete(local)  # two units have no higher order


def test_several_input_tensors_are_one_row():
    net, (x, b) = smooth_net(), ends()
    model = geh.GEHExplainer(lambda a, b: net(torch.cat([a, b], 1)), posterior=geh.posterior.PointEstimate())
    local = model.explain_row((x[None, :1], x[None, 1:]), baseline=(b[None, :1], b[None, 1:]), progress=False)
    np.testing.assert_allclose(local.matrix, integrated_hessian(lambda x: net(x)[:, 0], x, b), rtol=0, atol=1e-8)


def test_a_skip_connection_past_the_layer_stays_at_the_row():
    torch.manual_seed(0)

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3).double()

        def forward(self, x):
            return (self.body(x).tanh() * x[:, :3]).sum(1).exp()

    net, (x, b) = Skip(), ends()
    local = point_explainer(net, "body").explain_row(x, baseline=b, progress=False)
    reference = (net.body(b[None]).tanh() * x[None, :3]).sum(1).exp().item()
    assert local.reference == pytest.approx(reference)
    check_complete(local)


def test_given_steps_have_an_error_estimate_that_bounds_the_error():
    net, (x, b) = smooth_net(), ends()
    exact = point_explainer(net).explain_row(x, baseline=b, progress=False).matrix
    for steps in (2, 4):
        local = point_explainer(net).explain_row(x, baseline=b, steps=steps, progress=False)
        assert local.steps == steps
        assert np.abs(local.matrix - exact).max() < local.error
    assert point_explainer(net).explain_row(x, baseline=b, progress=False).error < 1e-7


def test_batch_sizes_and_other_rows_do_not_change_the_account():
    net = smooth_net()
    rows = random_points(3, 4)
    explainer = point_explainer(net)
    together = explainer.explain_row(rows, baseline=0, progress=False)
    assert len(together) == 3
    for row, local in zip(rows, together, strict=True):
        alone = explainer.explain_row(row, baseline=0, batch_size=3, progress=False)
        np.testing.assert_allclose(alone.matrix, local.matrix, rtol=0, atol=1e-13)


def test_derivatives_that_do_not_exist_on_the_path_are_an_error():
    with pytest.raises(geh.GEHError, match="along the path to the row are NaN or infinite"):
        point_explainer(lambda x: (x[:, 0] - x[:, 0]).sqrt() * x[:, 1]).explain_row(
            torch.ones(2), baseline=0, progress=False
        )
