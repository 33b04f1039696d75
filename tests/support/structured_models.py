"""Networks for the structured engine, and the comparison of two engines."""

import numpy as np
import torch
import torch.nn.functional as F
from explaining import explain_point
from torch import nn

import geh_explain as geh

#: Largest difference of the two engines, relative to the largest entry.
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
    """Products of tensors that depend on the units, of one shape and of two, a quotient, and a sum."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 6), nn.Linear(5, 6)

    def forward(self, x):
        a, b = torch.tanh(self.one(x)), self.two(x)
        pooled = torch.sigmoid(b.mean(1, keepdim=True))
        return ((a * b * pooled) / (2 + torch.exp(b)) - 3 * x[:, :1] * a + (1 - a) ** 3 / 4).sum(1)


class Odd(nn.Module):
    """Views, concatenation with a constant, slices, in-place arithmetic, stacked and flipped dimensions."""

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
    """Factors that follow each other, that differ by row, that broadcast, and that are used twice."""

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
    "in place after a function": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.ReLU(inplace=True), nn.Linear(6, 3)),
        (5,),
        {},
    ),
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


def agree(one, other, close):
    """Check that two results have the same sums, relative to the largest, and that these are not all 0."""
    for name in ("signed", "absolute"):
        a, b = getattr(one, name), getattr(other, name)
        assert np.abs(b).max() > 0
        assert np.abs(a - b).max() <= close * np.abs(b).max()


def check_model(name, dtype):
    """Check that the structured engine supports a network of ``MODELS``, and agrees with double backward."""
    make, shape, options = MODELS[name]
    model, x = make().to(dtype).eval(), torch.randn(12, *shape, dtype=dtype)
    options = {"target": 1, "groups": 3} | options
    result, expected = (explain_point(model, x, engine=engine, **options) for engine in ("structured", "exact"))
    assert (result.settings["engine"], expected.settings["engine"]) == ("structured", "exact")
    agree(result, expected, CLOSE[dtype])
