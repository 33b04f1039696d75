"""Ensemble: each draw is one member, explained as if it were alone."""

import numpy as np
import pytest
from explaining import explain_draws, random_points
from posterior_cases import dropping, local_hessians, network
from torch import nn

import geh_explain as geh
from geh_explain.posterior import Ensemble, PointEstimate

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
