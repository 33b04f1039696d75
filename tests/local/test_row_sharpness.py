"""Local Hessians of a batch of kinked rows: those of each row alone, computed together."""

import pytest
import torch
import torch.nn.functional as F
from explaining import random_points
from torch import nn

import geh_explain as geh
from geh_explain.captum import InputHessian, LayerHessian
from geh_explain.local import hessians


class Clamped(nn.Module):
    """Its clamps act in some rows only, so that rows differ in which calls are smoothed."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 50), nn.Linear(50, 20), nn.Linear(20, 1)

    def forward(self, x):
        h = F.elu(self.second(self.first(x).clamp(min=0)), alpha=0.7)
        return self.last(h.clamp(-0.6, 2).relu_())


class LargestOfSequence(nn.Module):
    """A maximum over a dimension in front of that of the rows: its rows are smoothed one by one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 10), nn.Linear(10, 1)

    def forward(self, x):
        return self.last(self.first(x.reshape(-1, 3, 2)).relu().transpose(0, 1).amax(0))


class OneRow(nn.Module):
    """ReLU inside the model's own vmap, which hides the dimension of the rows."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 10), nn.Linear(10, 1)

    def forward(self, x):
        return torch.vmap(lambda row: self.last(self.first(row).relu()))(x)


def deep():
    return nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 20), nn.ReLU6(), nn.Linear(20, 1))


def images():
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(27, 8), nn.LeakyReLU(), nn.Linear(8, 1))


CASES = {
    "deep": (deep, (6,), {}),
    "a given sharpness": (deep, (6,), {"smooth": 7.0}),
    "hidden": (deep, (6,), {"layer": "0"}),
    "clamped": (Clamped, (6,), {}),
    "images": (images, (1, 6, 6), {"units": geh.units.Patches(3)}),
    "channels": (images, (1, 6, 6), {"layer": "0"}),
    "sequence": (LargestOfSequence, (6,), {}),
    "vmap": (OneRow, (6,), {}),
}


@pytest.mark.filterwarnings("ignore:all 3 pairs are exactly 0")  # at rows far from all kinks
@pytest.mark.parametrize("case", CASES)
def test_each_row_is_smoothed_as_if_it_were_alone(case):
    make, shape, options = CASES[case]
    torch.manual_seed(0)
    model = make().double()
    x = random_points(7, *shape)
    x[1] *= 30
    x[4] /= 50
    kind = LayerHessian if "layer" in options else InputHessian
    method = kind(model, **options)
    together = method.attribute(x)
    alone = torch.cat([method.attribute(row[None]) for row in x])
    assert (alone.flatten(1).abs().amax(1) > 1e-6).sum() >= 5
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-13)


def test_targets_and_arguments_stay_with_their_rows():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3)).double()
    method = InputHessian(lambda x, factor, power: factor[:, None] * net(x) ** power)
    x, factors, targets = random_points(6, 4), torch.arange(1.0, 7).double(), torch.tensor([0, 1, 2, 2, 1, 0])
    together = method.attribute(x, targets, (factors, 2))
    for row in range(6):
        one = slice(row, row + 1)
        alone = method.attribute(x[one], targets[one], (factors[one], 2))
        torch.testing.assert_close(together[one], alone, rtol=1e-9, atol=1e-13)


def test_a_chunk_of_rows_takes_one_forward_pass_per_view(monkeypatch):
    """100 rows take hardly more forward passes than 3 rows do."""
    torch.manual_seed(0)
    passes = []

    class Counted(nn.Sequential):
        def forward(self, x):
            passes.append(len(x))
            return super().forward(x)

    model = Counted(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    method = InputHessian(model)
    counts = []
    for rows in (3, 100):
        passes.clear()
        method.attribute(random_points(rows, 4).float())
        counts.append(len(passes))
    assert counts[1] <= counts[0] + 2
    # Chunks that do not fit into memory at once give the same Hessians.
    x = random_points(9, 4).float()
    wanted = method.attribute(x)
    monkeypatch.setattr(hessians, "CHUNK_NUMBERS", 2 * 4**2)
    torch.testing.assert_close(method.attribute(x), wanted)


def test_functions_with_a_backward_pass_of_their_own_are_examined_in_each_row():
    class Hidden(torch.autograd.Function):
        """A square for positive numbers, which hides its second derivative."""

        @staticmethod
        def forward(ctx, x):
            ctx.slope = 2 * x.detach()
            return x**2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.slope

    net = nn.Linear(4, 4).double()
    with pytest.warns(geh.GEHWarning, match="contradict differences of gradients"):
        InputHessian(lambda x: Hidden.apply(net(x).relu()).sum(1)).attribute(random_points(5, 4))
