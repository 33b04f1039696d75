"""MCDropout.batched: several draws in one forward pass equal the draws one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout
from geh_explain.posterior.protocols import seed_of_draw

pytestmark = pytest.mark.usefixtures("seeded")


class OneByOne:
    """MC dropout without the method ``batched``."""

    def __init__(self, posterior=None):
        self.posterior = posterior or MCDropout()

    def draws(self, model, n, seed):
        return self.posterior.draws(model, n, seed)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.maps, self.last = nn.Conv2d(1, 3, 3), nn.Dropout2d(0.4), nn.Linear(3 * 4, 2)

    def forward(self, x):
        return self.last(F.dropout(torch.tanh(self.maps(self.conv(x))).flatten(1), 0.2))


def mlp():
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 2)).double()


def attention():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, activation="gelu", batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).double()


CASES = {
    "table": (mlp, (4,), {}),
    "maps": (lambda: Conv().double(), (1, 4, 4), {"units": geh.units.Patches(2)}),
    "attention": (attention, (3, 4), {"units": geh.units.Tokens()}),
}


@pytest.mark.parametrize("engine", ["auto", "exact"])
@pytest.mark.parametrize("groups", [3, "auto"])
@pytest.mark.parametrize("name", CASES)
def test_batched_draws_equal_single_draws(name, groups, engine):
    make, shape, options = CASES[name]
    model, x = make(), torch.randn(9, *shape, dtype=torch.double)
    target = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1])
    batched, alone = (
        geh.GEHExplainer(model, posterior=posterior, engine=engine, **options).explain(
            x, target, groups=groups, draws=25, progress=False
        )
        for posterior in (MCDropout(), OneByOne())
    )
    assert batched.settings["group_count"] == alone.settings["group_count"]
    np.testing.assert_allclose(batched.signed, alone.signed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(batched.absolute, alone.absolute, rtol=1e-9, atol=1e-12)


def test_one_forward_pass_evaluates_all_further_draws():
    sizes = []
    model = mlp()
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    geh.GEHExplainer(model).explain(torch.randn(9, 4).double(), 0, groups=1, draws=30, progress=False)
    assert max(sizes) == 9 * 29


def test_chosen_modules_only():
    model, x = mlp(), torch.randn(6, 4, dtype=torch.double)
    batched, alone = (
        geh.GEHExplainer(model, posterior=posterior).explain(x, 0, groups=1, draws=7, progress=False)
        for posterior in (MCDropout([model[3]]), OneByOne(MCDropout([model[3]])))
    )
    np.testing.assert_allclose(batched.signed, alone.signed, rtol=1e-9)


def test_a_batch_size_bounds_rows_times_draws():
    sizes = []
    model = mlp()
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    geh.GEHExplainer(model).explain(torch.randn(9, 4).double(), 0, groups=1, draws=30, batch_size=20, progress=False)
    assert max(sizes) <= 20


def test_rows_that_cannot_be_divided_among_the_draws_are_refused():
    model = mlp().eval()
    with torch.no_grad(), MCDropout().batched(model, range(2), seed=0):
        model(torch.randn(1, 4).double())
        with pytest.raises(geh.GEHError, match="5 rows cannot be divided among 2 draws"):
            model(torch.randn(5, 4).double())


def test_a_draw_has_the_masks_of_its_number():
    model, x = mlp().eval(), torch.randn(3, 4, dtype=torch.double)
    posterior = MCDropout()
    alone = []
    with torch.no_grad():
        for draw in posterior.draws(model, 4, seed=5):
            with draw:
                model(x[:1])
                alone.append(model(x))
        with posterior.batched(model, range(1, 4), seed=5):
            model(x[:1])
            batched = model(torch.cat([x] * 3))
    assert torch.equal(batched, torch.cat(alone[1:]))
    assert seed_of_draw(5, 1) != seed_of_draw(5, 2)


def test_the_row_of_an_error_is_one_of_the_points():
    def broken(x):
        return torch.where(x[:, 0] > 5, torch.nan, 1.0) * F.dropout(x, 0.5).prod(1)

    x = torch.rand(6, 2)
    x[4, 0] = 9
    with pytest.raises(geh.GEHError, match="row 4"):
        geh.GEHExplainer(broken).explain(x, groups=1, draws=8, progress=False)
