"""torchvision imports also where its compiled operators do not match torch, and its models are explained."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain import vision


def test_torchvision_can_be_imported_by_parts():
    models = vision.torchvision("models")
    assert models.resnet18(num_classes=3).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    assert vision.torchvision("models") is models
    assert vision.torchvision().__name__ == "torchvision"


def test_declarations_are_made_only_where_the_import_fails_for_their_lack(monkeypatch):
    made = []
    monkeypatch.setattr(vision, "_declare_missing", lambda: made.append(True))

    def failing(name):
        if not made:
            raise RuntimeError("operator torchvision::nms does not exist")
        return sys

    monkeypatch.setattr(vision.importlib, "import_module", failing)
    assert vision.torchvision.__wrapped__("models") is sys
    assert made == [True]
    monkeypatch.setattr(vision.importlib, "import_module", lambda name: (_ for _ in ()).throw(RuntimeError("other")))
    with pytest.raises(RuntimeError, match="other"):
        vision.torchvision.__wrapped__("models")


def test_a_missing_torchvision_is_an_error_with_the_way_out():
    code = (
        "import sys; sys.modules['torchvision'] = None\n"
        "import geh_explain as geh\nfrom geh_explain.vision import torchvision\n"
        "try:\n    torchvision('models')\nexcept geh.GEHError as error:\n    print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "geh-explain[vision]" in printed


class StochasticDepth(nn.Module):
    """Stochastic depth as in torchvision: the identity in eval mode."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        return x * torch.empty(len(x), *(1 for _ in x.shape[1:])).bernoulli_(1 - self.p) / (1 - self.p)


class Residual(nn.Module):
    def __init__(self, path):
        super().__init__()
        torch.manual_seed(0)
        self.branch, self.path = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), path
        self.double()

    def forward(self, x):
        return (x + self.path(self.branch(x))).prod(1)


OURS, THEIRS = (lambda: StochasticDepth(0.4)), (lambda: vision.torchvision("ops").StochasticDepth(0.4, "row"))


@pytest.mark.parametrize("path", [OURS, THEIRS], ids=["ours", "torchvision's"])
def test_stochastic_depth_drops_a_branch_for_all_rows_or_none(path):
    model, x = Residual(path()), torch.randn(6, 3, dtype=torch.double)
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.MCDropout())
    draws = explainer.explain(x, groups=np.arange(6), draws=60, progress=False).signed
    point = geh.posterior.PointEstimate()
    expected = [
        geh.GEHExplainer(lambda x, keep=keep: (x + keep * model.branch(x)).prod(1), posterior=point)
        .explain(x, groups=np.arange(6), progress=False)
        .signed[0]
        for keep in (0.0, 1 / 0.6)
    ]
    kept = np.array([np.allclose(draw, expected[1]) for draw in draws])
    dropped = np.array([np.allclose(draw, expected[0]) for draw in draws])
    assert (kept ^ dropped).all()
    assert kept.mean() == pytest.approx(0.6, abs=4 * np.sqrt(0.24 / 60))
    assert model.path.training
