"""The structured engine gives the Hessians of double backward, or falls back to it and says why."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, explain_point
from structured_models import MODELS, agree, check_model, table
from torch import nn

import geh_explain as geh
from geh_explain.engines import Structured
from geh_explain.engines.structured.rules.table import _RULES
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, WeightSamples

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_two_backward_passes_give(name):
    check_model(name, torch.float64)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("name", ["three layers", "gates", "max pooling"])
def test_it_is_what_two_backward_passes_give_in_single_precision(name):
    check_model(name, torch.float32)


@pytest.mark.parametrize(
    "posterior", [MCDropout(), None, "ensemble", "samples"], ids=["dropout", "default", "ensemble", "samples"]
)
def test_draws_are_the_same(posterior):
    make = lambda: table(nn.Tanh(), nn.Softplus(), p=0.3).double()  # noqa: E731
    model, x = make(), torch.randn(15, 5, dtype=torch.double)
    if posterior == "ensemble":
        posterior = Ensemble([make() for _ in range(4)])
    elif posterior == "samples":
        posterior = WeightSamples([make().state_dict() for _ in range(4)])
    result, expected = (
        explain_draws(model, x, 1, engine=engine, draws=4, posterior=posterior, groups=3)
        for engine in ("structured", "exact")
    )
    agree(result, expected, 1e-10)
    assert np.ptp(result.absolute, axis=0).min() > 0


def test_every_rule_has_the_name_of_a_torch_function():
    namespaces = (torch, F, torch.Tensor)
    functions = [getattr(namespace, name, None) for namespace in namespaces for name in dir(namespace)]
    names = {getattr(function, "__name__", "").strip("_") for function in functions}
    # Linear layers of several draws at once are a function of this package.
    assert set(_RULES) - names == {"linear_by_draw"}


@pytest.mark.parametrize("function", [nn.LogSigmoid(), F.logsigmoid], ids=["module", "function"])
def test_log_sigmoid_has_a_rule(function):
    first, second = nn.Linear(4, 6).double(), nn.Linear(6, 1).double()
    x = torch.randn(20, 4, dtype=torch.double)
    result, expected = (
        explain_point(lambda x: second(function(first(x))), x, engine=engine) for engine in ("structured", "exact")
    )
    assert result.settings["engine"] == "structured"
    agree(result, expected, 1e-10)


def test_several_tensors_as_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(2, 4), nn.Linear(3, 4)

        def forward(self, a, b):
            return torch.tanh(self.left(a) * self.right(b)).sum(1)

    model, x = Two().double(), (torch.randn(9, 2).double(), torch.randn(9, 3).double())
    result, expected = (explain_point(model, x, engine=engine, groups=3) for engine in ("structured", "exact"))
    assert result.settings["engine"] == "structured"
    agree(result, expected, 1e-10)


@pytest.mark.parametrize("batch_size", [1, 5, None])
def test_the_batch_size_changes_nothing(batch_size):
    model, x = table(nn.Tanh(), nn.Tanh(), p=0.2).double(), torch.randn(14, 5, dtype=torch.double)
    expected = explain_draws(model, x, 1, engine="structured", groups=3, draws=3)
    agree(
        explain_draws(model, x, 1, engine="structured", batch_size=batch_size, groups=3, draws=3),
        expected,
        1e-12,
    )


# Networks that are not supported.


class HiddenSquare(torch.autograd.Function):
    """A square whose torch calls cannot be intercepted."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


def attention(x):
    return F.scaled_dot_product_attention(x[:, None, :, None], x[:, None, :, None], x[:, None, :, None]).sum((1, 2, 3))


UNSUPPORTED = {
    "attention": (attention, "scaled_dot_product_attention"),
    "an outer product": (lambda x: torch.einsum("ni,nj->nij", x, x).exp().sum((1, 2)), "einsum"),
    "a matrix product": (lambda x: (x[:, :, None] @ x[:, None]).exp().sum((1, 2)), "matmul"),
    "a transposed batch": (lambda x: torch.exp(x.T.sum(0)), "get()"),
    "a function of one's own": (lambda x: x[:, 0] * x[:, 1] + HiddenSquare.apply(x.sum(1)), "cannot record"),
    "cumulative sums": (lambda x: x.cumsum(1).exp().sum(1), "cumsum"),
    "a weighted sum": (lambda x: torch.add(x, x.sin(), alpha=2).exp().prod(1), "add() with alpha"),
    "a sum over more dimensions": (lambda x: (torch.ones(3, 1).to(x) + x.sum(1).exp()).sum(0), "a sum that adds"),
    "a product over more dimensions": (lambda x: (torch.ones(3, 1).to(x) * x.sum(1).exp()).sum(0), "a product that"),
    "a rounded quotient": (lambda x: (torch.div(x, 2, rounding_mode="floor") + x).exp().prod(1), "rounds"),
    "a quotient in place": (lambda x: x.sin().div_(2 + x.cos()).prod(1), "a division in place"),
    "a constant multiplied in place": (lambda x: torch.full_like(x, 2).mul_(x).exp().prod(1), "a product in place"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("engine", ["auto", "structured"])
def test_an_unsupported_network_goes_to_the_exact_engine_with_the_reason(name, engine):
    model, reason = UNSUPPORTED[name]
    x = torch.randn(8, 4, dtype=torch.double)
    result, expected = (explain_point(model, x, engine=kind, groups=3) for kind in (engine, "exact"))
    assert result.settings["engine"] == "exact"
    assert "engine='structured' does not take" in result.settings["engine_reason"]
    assert reason in result.settings["engine_reason"]
    agree(result, expected, 1e-12)


def test_what_autograd_computes_faster_is_left_to_it_before_products_are_formed(monkeypatch):
    def never(*_):
        raise AssertionError("products of directions were computed")

    monkeypatch.setattr("geh_explain.engines.structured.program._add_term", never)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(4 * 144, 1))
    result = explain_point(net, torch.randn(2, 1, 12, 12), engine="auto", groups=1)
    assert result.settings["engine"] == "exact"
    assert "144 units, whose products over 576 curved numbers cost more" in result.settings["engine_reason"]


def test_rows_on_an_unsupported_branch_go_to_the_exact_engine():
    def branching(x):
        return x.prod(1).exp() if len(x) == 3 else torch.exp(x[:, 0] * x[:, 1])

    x = torch.rand(13, 2, dtype=torch.double)
    result = explain_point(branching, x, engine="structured", batch_size=5, groups=3)
    agree(result, explain_point(branching, x, engine="exact", batch_size=5, groups=3), 1e-12)
    assert result.settings["engine"] == "structured"


def test_each_member_of_an_ensemble_is_supported_or_not():
    fits, other = table(nn.Tanh()).double(), nn.Sequential(nn.Linear(5, 4), nn.Softmin(1), nn.Linear(4, 3)).double()
    x = torch.randn(9, 5, dtype=torch.double)
    result, expected = (
        explain_draws(fits, x, 1, engine=engine, posterior=Ensemble([fits, other, fits]), groups=3, draws=3)
        for engine in ("auto", "exact")
    )
    agree(result, expected, 1e-10)
    assert np.array_equal(result.signed[0], result.signed[2])


def test_an_additive_model_has_no_interactions_exactly():
    with pytest.warns(geh.GEHWarning, match="exactly 0"):
        result = explain_point(lambda x: torch.tanh(x).sum(1), torch.randn(6, 3), engine="structured", groups=1)
    assert not result.absolute.any()


def test_a_function_without_derivative_at_a_row_is_an_error():
    with pytest.raises(geh.GEHError, match="NaN or infinite in rows 0 to 3"):
        explain_point(lambda x: (x.sum(1) * x[:, 0]).sqrt(), torch.zeros(4, 2), engine="structured", groups=1)


def test_an_instance_may_be_passed():
    result = explain_point(table(nn.Tanh()), torch.randn(6, 5), 1, engine=Structured(), groups=1)
    assert (result.settings["engine"], result.settings["engine_settings"]) == ("structured", "Structured()")


# Many units that enter through a narrow layer.


def wide(units=600, hidden=5, p=0.0):
    layers = [nn.Dropout(p), nn.Linear(units, hidden), nn.Tanh(), nn.Linear(hidden, 4), nn.Softplus(), nn.Linear(4, 1)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("posterior", [PointEstimate(), MCDropout()], ids=["point", "dropout"])
def test_pulled_back_hessians_are_those_of_the_units(posterior):
    model, x = wide(60, p=0.2), torch.randn(20, 60, dtype=torch.double)
    result, expected = (
        explain_draws(model, x, engine=engine, posterior=posterior, groups=3, draws=3)
        for engine in ("structured", "exact")
    )
    assert result.settings["engine"] == "structured"
    agree(result, expected, 1e-10)


def test_main_effects_beside_do_not_disturb():
    class Hybrid(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.net = nn.Linear(40, 1), wide(40)
            self.double()

        def forward(self, x):
            return self.main(x) + self.net(0.5 * x - 1)

    model, x = Hybrid(), torch.randn(10, 40, dtype=torch.double)
    for output in ("raw", "probability"):
        result, expected = (
            explain_point(model, x, engine=engine, output=output, groups=3) for engine in ("structured", "exact")
        )
        assert result.settings["engine"] == "structured"
        agree(result, expected, 1e-10)


def test_absolute_interactions_of_very_many_units_come_from_some_points(monkeypatch):
    monkeypatch.setattr("geh_explain.engines.structured.engine._ABSOLUTE_WORK", 1e6)
    monkeypatch.setattr("geh_explain.engines.structured.engine._MIN_ABSOLUTE", 8)
    model, x = wide(600), torch.randn(50, 600, dtype=torch.double)
    result = explain_point(model, x, engine="structured", groups=3)
    expected = explain_point(model, x, engine="exact", groups=3)
    assert np.abs(result.signed - expected.signed).max() <= 1e-10 * np.abs(expected.signed).max()
    assert result.settings["eah_points"] == 8
    with pytest.warns(geh.GEHWarning, match="eah: measured on 8 of 50 points"):
        eah = result.eah
    assert (eah.draws >= result.geh.draws - 1e-15).all()
    # 8 points give the order of magnitude only.
    assert np.corrcoef(eah.draws[0], expected.eah.draws[0])[0, 1] > 0.8
    everywhere = explain_point(model, x, engine="structured", eah_points=50, groups=3)
    agree(everywhere, expected, 1e-10)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "all"])
def test_eah_points_is_a_number_of_points(wrong):
    with pytest.raises(geh.GEHError, match="eah_points"):
        explain_point(wide(10), torch.randn(5, 10, dtype=torch.double), engine="auto", eah_points=wrong, groups=3)
