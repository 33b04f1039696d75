"""The structured engine gives what two backward passes give, says why where it does not fit, and never guesses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.engines import Structured
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, WeightSamples

pytestmark = pytest.mark.usefixtures("seeded")

#: How close the two engines have to be, relative to the largest entry.
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-10}


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        out = self.norm(self.conv(x))
        out += x
        return self.act(out)


class Gated(nn.Module):
    """Products of what depends on the units, of one shape and of two, a quotient, and a sum with itself."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 6), nn.Linear(5, 6)

    def forward(self, x):
        a, b = torch.tanh(self.one(x)), self.two(x)
        pooled = torch.sigmoid(b.mean(1, keepdim=True))
        return ((a * b * pooled) / (2 + torch.exp(b)) - 3 * x[:, :1] * a + (1 - a) ** 3 / 4).sum(1)


class Odd(nn.Module):
    """Views, concatenation with a constant, slices, in-place arithmetic, a numpy-like mix of dimensions."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 6)

    def forward(self, x):
        x = torch.cat([x, torch.ones(len(x), 3).to(x)], dim=1)
        h = self.lin(x).view(len(x), 2, 3).transpose(1, 2)
        h = torch.stack([h[:, 0], h[:, 2]], dim=1).flip(1).reshape(len(x), -1)
        h = F.silu(h)
        left, right = h.chunk(2, dim=1)
        left = left.clone()
        left.mul_(0.5)
        left -= right * 2
        left = torch.where(left > 0, left, torch.zeros_like(left) + 0.1 * right)
        return (F.pad(left, (1, 0), value=3.0) ** 2).sum(dim=1) - F.gelu(right).mean(-1)


class Factors(nn.Module):
    """Factors that follow each other, that rows have for themselves, that grow, and that are used twice."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        rows = x.detach()
        h = torch.tanh(self.one(x)) * rows[:, :4] * rows.sum(1, keepdim=True) * 0.5
        h = torch.sigmoid(self.two(h)) + h
        narrow = torch.tanh(self.three(h))
        return (self.two(narrow * rows[:, 1:]) * narrow.sin() * torch.cos(h)).sum(1)


def images(pool, act=nn.ReLU):
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), act(), pool, Residual(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * 9, 5)),
        *(nn.Softplus(), nn.Linear(5, 3)),
    )


def table(*acts, p=0.0, last=3):
    layers, width = [], 5
    for act in acts:
        layers += [nn.Linear(width, 7), act, nn.Dropout(p)]
        width = 7
    return nn.Sequential(*layers, nn.Linear(width, last))


PATCHES = geh.units.Patches(2)

MODELS = {
    "one layer": (lambda: table(nn.Tanh()), (5,), {}),
    "three layers": (lambda: table(nn.Tanh(), nn.Softplus(beta=10), nn.Sigmoid()), (5,), {}),
    "smoothed kinks": (lambda: table(nn.ReLU(), nn.LeakyReLU(), nn.Hardswish()), (5,), {}),
    "more kinks": (lambda: table(nn.PReLU(), nn.ELU(alpha=2), nn.Hardtanh(inplace=True)), (5,), {}),
    "probability": (lambda: table(nn.GELU(), nn.Mish()), (5,), {"output": "probability"}),
    "logarithm": (lambda: table(nn.GELU(), nn.Mish()), (5,), {"output": lambda out: out.log_softmax(1)}),
    "sigmoid": (
        lambda: nn.Sequential(table(nn.Tanh()), nn.Linear(3, 1)),
        (5,),
        {"output": "probability", "target": None},
    ),
    "no first layer": (lambda: nn.Sequential(nn.Tanh(), nn.Linear(5, 3), nn.Softplus(), nn.Linear(3, 3)), (5,), {}),
    "gates": (Gated, (5,), {"target": None}),
    "factors": (Factors, (5,), {"target": None}),
    "odd forward": (Odd, (5,), {"target": None}),
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)), (5,), {}),
    "max pooling": (lambda: images(nn.MaxPool2d(2)), (2, 6, 6), {"units": PATCHES}),
    "overlapping pools": (lambda: images(nn.MaxPool2d(3, 2, 1)), (2, 6, 6), {"units": geh.units.Patches(3)}),
    "hard pooling": (
        lambda: images(nn.MaxPool2d(2), nn.Tanh),
        (2, 6, 6),
        {"units": geh.units.Patches(2), "smooth": None},
    ),
    "average pooling": (lambda: images(nn.AvgPool2d(2), nn.SELU), (2, 6, 6), {"units": PATCHES}),
    "hidden channels": (lambda: images(nn.MaxPool2d(2)), (2, 6, 6), {"layer": "0"}),
    "hidden neurons": (lambda: images(nn.MaxPool2d(2)), (2, 6, 6), {"layer": "6", "output": "probability"}),
    "some units": (lambda: table(nn.Tanh(), nn.Tanh()), (5,), {"units": geh.units.Subset([3, 0, 4])}),
    "groups of units": (lambda: table(nn.Tanh()), (5,), {"units": geh.units.FeatureGroups({"a": [0, 2]}, rest=True)}),
    "more units than width": (lambda: nn.Sequential(nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 3)), (5,), {}),
}


def explained(model, x, engine, target=1, draws=3, **options):
    groups = options.pop("groups", 3)
    more = {key: options.pop(key) for key in ("scale", "batch_size", "eah_points") if key in options}
    options = {"posterior": PointEstimate()} | options
    explainer = geh.GEHExplainer(model, engine=engine, **options)
    return explainer.explain(x, target, groups=groups, draws=draws, progress=False, **more)


def agree(one, other, close):
    for name in ("signed", "absolute"):
        a, b = getattr(one, name), getattr(other, name)
        assert np.abs(b).max() > 0
        assert np.abs(a - b).max() <= close * np.abs(b).max()


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("dtype", CLOSE, ids=["single", "double"])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_two_backward_passes_give(name, dtype):
    make, shape, options = MODELS[name]
    model, x = make().to(dtype).eval(), torch.randn(12, *shape, dtype=dtype)
    found, expected = (explained(model, x, engine, **options) for engine in ("structured", "exact"))
    assert (found.settings["engine"], expected.settings["engine"]) == ("structured", "exact")
    agree(found, expected, CLOSE[dtype])


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
    found, expected = (explained(model, x, engine, draws=4, posterior=posterior) for engine in ("structured", "exact"))
    agree(found, expected, 1e-10)
    assert np.ptp(found.absolute, axis=0).min() > 0


def test_several_tensors_as_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(2, 4), nn.Linear(3, 4)

        def forward(self, a, b):
            return torch.tanh(self.left(a) * self.right(b)).sum(1)

    model, x = Two().double(), (torch.randn(9, 2).double(), torch.randn(9, 3).double())
    found, expected = (explained(model, x, engine, None) for engine in ("structured", "exact"))
    assert found.settings["engine"] == "structured"
    agree(found, expected, 1e-10)


@pytest.mark.parametrize("batch_size", [1, 5, None])
def test_the_batch_size_changes_nothing(batch_size):
    model, x = table(nn.Tanh(), nn.Tanh(), p=0.2).double(), torch.randn(14, 5, dtype=torch.double)
    check_int = explained(model, x, "structured", posterior=None)
    agree(explained(model, x, "structured", posterior=None, batch_size=batch_size), check_int, 1e-12)


# What does not fit


class Unseen(torch.autograd.Function):
    """A square that calls of torch do not show."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


def attention(x):
    return F.scaled_dot_product_attention(x[:, None, :, None], x[:, None, :, None], x[:, None, :, None]).sum((1, 2, 3))


MISFITS = {
    "attention": (attention, "scaled_dot_product_attention"),
    "an outer product": (lambda x: torch.einsum("ni,nj->nij", x, x).exp().sum((1, 2)), "einsum"),
    "a matrix product": (lambda x: (x[:, :, None] @ x[:, None]).exp().sum((1, 2)), "matmul"),
    "a transposed batch": (lambda x: torch.exp(x.T.sum(0)), "get()"),
    "a function of one's own": (lambda x: x[:, 0] * x[:, 1] + Unseen.apply(x.sum(1)), "does not see"),
    "cumulative sums": (lambda x: x.cumsum(1).exp().sum(1), "cumsum"),
}


@pytest.mark.parametrize("name", MISFITS)
@pytest.mark.parametrize("engine", ["auto", "structured"])
def test_what_does_not_fit_is_handed_over_with_the_reason(name, engine):
    model, reason = MISFITS[name]
    x = torch.randn(8, 4, dtype=torch.double)
    found, expected = (explained(model, x, kind, None) for kind in (engine, "exact"))
    assert found.settings["engine"] == "exact"
    assert "engine='structured' does not take" in found.settings["engine_reason"]
    assert reason in found.settings["engine_reason"]
    agree(found, expected, 1e-12)


def test_what_does_not_pay_is_refused_before_it_is_done(monkeypatch):
    def never(*_):
        raise AssertionError("products of directions were computed")

    monkeypatch.setattr("geh_explain.engines.structured.program._added", never)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(4 * 144, 1))
    found = explained(net, torch.randn(2, 1, 12, 12), "auto", None, groups=1)
    assert found.settings["engine"] == "exact"
    assert "144 units, whose products over 576 curved numbers cost more" in found.settings["engine_reason"]


def test_a_path_that_only_some_rows_take_is_handed_over():
    def branching(x):
        return x.prod(1).exp() if len(x) == 3 else torch.exp(x[:, 0] * x[:, 1])

    x = torch.rand(13, 2, dtype=torch.double)
    found = explained(branching, x, "structured", None, batch_size=5)
    agree(found, explained(branching, x, "exact", None, batch_size=5), 1e-12)
    assert found.settings["engine"] == "structured"


def test_members_of_an_ensemble_fit_or_not_one_by_one():
    fits, other = table(nn.Tanh()).double(), nn.Sequential(nn.Linear(5, 4), nn.Softmin(1), nn.Linear(4, 3)).double()
    x = torch.randn(9, 5, dtype=torch.double)
    found, expected = (
        explained(fits, x, engine, posterior=Ensemble([fits, other, fits])) for engine in ("auto", "exact")
    )
    agree(found, expected, 1e-10)
    assert np.array_equal(found.signed[0], found.signed[2])


def test_an_additive_model_has_no_interactions_exactly():
    with pytest.warns(geh.GEHWarning, match="exactly 0"):
        result = explained(lambda x: torch.tanh(x).sum(1), torch.randn(6, 3), "structured", None, groups=1)
    assert not result.absolute.any()


def test_a_function_without_derivative_at_a_row_is_an_error():
    with pytest.raises(geh.GEHError, match="NaN or infinite in rows 0 to 3"):
        explained(lambda x: (x.sum(1) * x[:, 0]).sqrt(), torch.zeros(4, 2), "structured", None, groups=1)


def test_an_instance_may_be_passed():
    result = explained(table(nn.Tanh()), torch.randn(6, 5), Structured(), groups=1)
    assert (result.settings["engine"], result.settings["engine_settings"]) == ("structured", "Structured()")


# Many units that enter through a narrow layer


def wide(units=600, hidden=5, p=0.0):
    layers = [nn.Dropout(p), nn.Linear(units, hidden), nn.Tanh(), nn.Linear(hidden, 4), nn.Softplus(), nn.Linear(4, 1)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("posterior", [PointEstimate(), MCDropout()], ids=["point", "dropout"])
def test_pulled_back_hessians_are_those_of_the_units(posterior):
    model, x = wide(60, p=0.2), torch.randn(20, 60, dtype=torch.double)
    found, expected = (explained(model, x, engine, None, posterior=posterior) for engine in ("structured", "exact"))
    assert found.settings["engine"] == "structured"
    agree(found, expected, 1e-10)


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
        found, expected = (explained(model, x, engine, None, output=output) for engine in ("structured", "exact"))
        assert found.settings["engine"] == "structured"
        agree(found, expected, 1e-10)


def test_absolute_interactions_of_very_many_units_come_from_some_points(monkeypatch):
    monkeypatch.setattr("geh_explain.engines.structured.engine._ABSOLUTE_WORK", 1e6)
    monkeypatch.setattr("geh_explain.engines.structured.engine._MIN_ABSOLUTE", 8)
    model, x = wide(600), torch.randn(50, 600, dtype=torch.double)
    result = explained(model, x, "structured", None)
    expected = explained(model, x, "exact", None)
    assert np.abs(result.signed - expected.signed).max() <= 1e-10 * np.abs(expected.signed).max()
    assert result.settings["eah_points"] == 8
    with pytest.warns(geh.GEHWarning, match="eah: measured on 8 of 50 points"):
        eah = result.eah
    assert (eah.draws >= result.geh.draws - 1e-15).all()
    # 8 points tell the size, and no more.
    assert np.corrcoef(eah.draws[0], expected.eah.draws[0])[0, 1] > 0.8
    everywhere = explained(model, x, "structured", None, eah_points=50)
    agree(everywhere, expected, 1e-10)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "all"])
def test_eah_points_is_a_number_of_points(wrong):
    with pytest.raises(geh.GEHError, match="eah_points"):
        explained(wide(10), torch.randn(5, 10, dtype=torch.double), "auto", None, eah_points=wrong)
