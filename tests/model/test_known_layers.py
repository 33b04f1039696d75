"""Networks of torch's own layers need no forward passes to show that they treat rows one by one; all others do."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode

import geh_explain as geh
from geh_explain.model.known_layers import has_known_layers, is_smooth
from geh_explain.model.preserve import had_known_layers, preserved
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, WeightSamples
from geh_explain.run.options import RunOptions
from geh_explain.run.setup import ModelSetup

pytestmark = pytest.mark.usefixtures("seeded")


def made(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Softplus(), *between, nn.Linear(4, 1))


class OwnLinear(nn.Linear):
    """A layer whose forward method could be anything."""


def with_forward(net: nn.Module) -> nn.Module:
    net[0].forward = lambda x: x.sum(dim=0).expand(len(x), 4)
    return net


def with_hook(net: nn.Module) -> nn.Module:
    net[1].register_forward_hook(lambda module, args, out: out - out.mean(dim=0))
    return net


def with_weight_of_its_own(net: nn.Module) -> nn.Module:
    weight = net[0].weight.detach()
    del net[0].weight
    net[0].weight = weight
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda: made(nn.BatchNorm1d(4)),
        lambda: made(nn.Softmax(dim=0)),
        lambda: made(OwnLinear(4, 4)),
        lambda: made(nn.ReLU(inplace=True)),
        lambda: with_forward(made()),
        lambda: with_hook(made()),
        lambda: with_weight_of_its_own(made()),
        lambda: parametrizations.weight_norm(nn.Linear(3, 1)),
    ],
    ids=["statistics", "softmax", "subclass", "in place", "forward", "hook", "weight", "parametrised"],
)
def test_what_is_not_torchs_own_is_unknown(make):
    assert has_known_layers(made())
    assert not has_known_layers(make())


def test_a_class_that_was_changed_is_unknown(monkeypatch):
    monkeypatch.setattr(nn.Softplus, "forward", lambda self, x: x - x.mean(dim=0))
    assert not has_known_layers(made())


@pytest.mark.parametrize("owner", [nn.Softplus, nn.Module])
@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
def test_calls_in_the_place_of_torchs_own_are_unknown(owner, name, monkeypatch):
    monkeypatch.setattr(owner, name, lambda self, x: x - x.mean(dim=0))
    assert not has_known_layers(made())


@pytest.mark.parametrize("name", ["_call_impl", "_compiled_call_impl"])
def test_calls_of_a_layer_of_its_own_are_unknown(name):
    net = made()
    setattr(net[1], name, lambda x: x - x.mean(dim=0))
    assert not has_known_layers(net)


@pytest.mark.parametrize(("module", "name"), [(torch, "tanh"), (nn.functional, "linear"), (nn.functional, "softplus")])
def test_functions_in_the_place_of_torchs_own_are_unknown(module, name, monkeypatch):
    monkeypatch.setattr(module, name, lambda x, *args: x.detach() * x)
    assert not has_known_layers(made())


def test_what_intercepts_calls_makes_them_unknown():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        assert not has_known_layers(made())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not has_known_layers(made())
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        assert not has_known_layers(made())
    finally:
        handle.remove()
    assert has_known_layers(made())


def test_a_kink_is_not_smooth():
    assert is_smooth(made(nn.Dropout(0.1), nn.Tanh()))
    assert not is_smooth(made(nn.ReLU()))


def test_within_preserved_it_is_what_it_was_at_the_entry():
    for net in (made(), with_hook(made())):
        before = has_known_layers(net)
        with preserved(net):
            assert had_known_layers(net) is before


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda: None, True),
        (PointEstimate, True),
        (MCDropout, True),
        (lambda: Ensemble([made(), made(nn.ReLU())]), True),
        (lambda: Ensemble([made(), made(nn.BatchNorm1d(4))]), False),
        (lambda: WeightSamples([made().state_dict()]), False),
    ],
)
def test_all_networks_of_the_posterior_must_be_known(make, known):
    posterior = make()
    setup = geh.GEHExplainer(made(nn.Dropout(0.1)), posterior=posterior)._setup
    assert isinstance(setup, ModelSetup)
    with preserved(setup.model):
        cut = setup.read(torch.randn(8, 3), RunOptions().target, None)[1]
    assert cut.known_layers is known
    assert cut.known_smooth is (known and not isinstance(posterior, Ensemble))


def test_rows_that_are_vectors_of_units_are_unknown():
    # nn.Linear takes the rows of a batch (n,) for features.
    setup = geh.GEHExplainer(made(), layer="0", posterior=PointEstimate())._setup
    with preserved(setup.model):
        assert not setup.read(torch.randn(8, 3), None, None)[1].known_layers


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_a_network_that_mixes_rows_by_a_hook_is_still_refused():
    explainer = geh.GEHExplainer(with_hook(made()), posterior=PointEstimate())
    with pytest.raises(geh.GEHError, match="mixes rows"):
        explainer.explain(torch.randn(20, 3), groups=1, progress=False)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("kinks", [False, True])
def test_scores_are_those_of_the_same_network_with_all_checks(kinks):
    net, x = made(*((nn.ReLU(), nn.Dropout(0.3)) if kinks else ())), torch.randn(40, 3)
    watched = nn.Sequential(net, OwnIdentity())
    assert has_known_layers(net)
    assert not has_known_layers(watched)
    explain = lambda model: geh.GEHExplainer(model).explain(x, groups=2, draws=3, progress=False)  # noqa: E731
    known, unknown = explain(net), explain(watched)
    assert (known.signed == unknown.signed).all()
    assert (known.absolute == unknown.absolute).all()


class OwnIdentity(nn.Identity):
    """A layer that does nothing, of a type of its own."""
