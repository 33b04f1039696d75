"""Ensemble: each draw is one member, explained as if it were alone."""

import numpy as np
import pytest
import torch
from explaining import explain_draws, random_points
from posterior_cases import dropping, local_hessians, network
from torch import nn

import geh_explain as geh
from geh_explain.posterior import Ensemble, PointEstimate, ensemble

pytestmark = pytest.mark.usefixtures("seeded")


def test_an_ensemble_is_its_members_explained_one_by_one():
    members = [network(hidden=4), dropping(), lambda x: x[:, 0] * x[:, 1] ** 2 + x[:, 2]]
    inputs = random_points(6, 3)
    draws = local_hessians(network(), inputs, Ensemble(members))
    alone = [local_hessians(member, inputs, PointEstimate())[0] for member in members]
    assert np.array_equal(draws, np.stack(alone))


def test_the_model_itself_may_be_a_member():
    members = [network(), network(hidden=4)]
    inputs = random_points(6, 3)
    draws = local_hessians(members[0], inputs, Ensemble(members))
    assert np.array_equal(draws[0], local_hessians(members[0], inputs, PointEstimate())[0])
    assert np.array_equal(draws[1], local_hessians(members[1], inputs, PointEstimate())[0])


def test_a_member_may_contain_the_model():
    model = network()
    member = nn.Sequential(model, nn.Tanh())
    inputs = random_points(6, 3)
    draws = local_hessians(model, inputs, Ensemble([model, member]))
    assert np.array_equal(draws[1], local_hessians(member, inputs, PointEstimate())[0])


def test_an_ensemble_gives_as_many_draws_as_it_has_members():
    members, x = [network() for _ in range(5)], random_points(20, 3)
    complete = explain_draws(members[0], x, posterior=Ensemble(members), draws=100).signed
    fewer = explain_draws(members[0], x, posterior=Ensemble(nn.ModuleList(members)), draws=3).signed
    assert (len(complete), len(fewer)) == (5, 3)
    assert np.array_equal(fewer, complete[:3])


@pytest.mark.parametrize("layer", ["0", "2"])
def test_an_ensemble_has_no_hidden_units_to_compare(layer):
    members = [network(), network()]
    with pytest.raises(geh.GEHError, match=rf"layer='{layer}'.*do not correspond.*(MCDropout|WeightSamples)") as error:
        geh.GEHExplainer(members[0], layer, posterior=Ensemble(members))
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    "models", [[], nn.Tanh(), 5, None, [3], ["net"]], ids=["empty", "one", "5", "None", "[3]", "text"]
)
def test_an_ensemble_is_a_list_of_networks(models):
    with pytest.raises(geh.GEHError, match="model"):
        Ensemble(models)


# Members of one architecture.


def equal_members(count, activation=nn.Tanh):
    members = []
    for seed in range(count):
        torch.manual_seed(seed)
        members.append(nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 6), activation(), nn.Linear(6, 1)))
    return members


@pytest.fixture
def blocks(monkeypatch):
    """Numbers of the members that were computed together."""
    found = []
    batched = ensemble._OneArchitecture.batched

    def recorded(self, model, draws, seed):
        found.append(list(draws))
        return batched(self, model, draws, seed)

    monkeypatch.setattr(ensemble._OneArchitecture, "batched", recorded)
    return found


def draws_of(members, model=None, **options):
    explainer = geh.GEHExplainer(model or members[0], posterior=geh.posterior.Ensemble(members), **options)
    return explainer.explain(random_points(20, 3), groups=2, progress=False)


def test_members_with_the_same_layers_are_computed_together(blocks):
    members = equal_members(12)
    before = [{name: value.clone() for name, value in member.state_dict().items()} for member in members]
    together = draws_of(members)
    # The first two are also computed for a comparison with the first alone; the first draw is always computed alone.
    assert blocks == [[0, 1], list(range(1, 12))]
    np.testing.assert_allclose(together.geh.draws, draws_of(members, engine="exact").geh.draws, rtol=1e-4, atol=1e-7)
    for member, weights in zip(members, before, strict=True):
        assert all(torch.equal(value, weights[name]) for name, value in member.state_dict().items())
        assert not any("forward" in vars(layer) for layer in member.modules())


def test_the_model_of_the_explainer_need_not_be_a_member(blocks):
    model, *members = equal_members(10)
    together = draws_of(members, model)
    assert blocks[-1] == list(range(1, 9))
    np.testing.assert_array_equal(together.geh.draws[0], draws_of(members[:1], model).geh.draws[0])
    np.testing.assert_allclose(together.geh.draws[-1], draws_of(members[-1:], model).geh.draws[0], rtol=1e-5)


def with_hook(members):
    members[3][0].register_forward_hook(lambda module, args, out: 2 * out)


def with_another_activation(members):
    members[3][1] = nn.Sigmoid()


def with_a_shared_layer(members):
    for member in members:
        member[2].weight = nn.Parameter(torch.eye(6))
        member.insert(3, member[2])


@pytest.mark.parametrize("change", [with_hook, with_another_activation, with_a_shared_layer])
def test_other_members_are_computed_one_by_one(change, blocks):
    members = equal_members(12)
    change(members)
    found = draws_of(members)
    assert blocks == []
    np.testing.assert_allclose(found.geh.draws, draws_of(members, engine="exact").geh.draws, rtol=1e-4, atol=1e-7)


def test_kinked_members_are_smoothed_each_by_itself(blocks):
    draws_of(equal_members(12, nn.ReLU))
    assert blocks == []


def test_members_of_another_precision_are_not_computed_together():
    members = equal_members(3)
    members[0].double()
    assert type(geh.posterior.Ensemble(members).prepared(members[1], "raw")) is geh.posterior.Ensemble
