"""Where a model drops, and the warning that only its head is random."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


class Classifier(nn.Module):
    """Convolutions, and a head of linear layers with functional dropout of rate ``p`` before the last one."""

    def __init__(self, p=0.5, p_below=0.0):
        super().__init__()
        self.conv1, self.norm, self.conv2 = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 3)
        self.maps = nn.Dropout2d(p_below)
        self.fc1, self.fc2, self.p = nn.Linear(5, 6), nn.Linear(6, 2), p

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv1(x)))
        x = torch.tanh(self.conv2(self.maps(x))).mean((2, 3))
        return self.fc2(F.dropout(torch.tanh(self.fc1(x)), self.p, self.training))


def layers(*places):
    """Return linear layers with dropout after those of these numbers."""
    modules = []
    for number in range(4):
        modules += [nn.Linear(3, 3), nn.Tanh(), *([nn.Dropout(0.2)] if number in places else [])]
    return nn.Sequential(*modules, nn.Linear(3, 1))


def places_of(model, x, layer=None):
    model.eval()
    with torch.no_grad():
        return MCDropout().examine(model, lambda: model(x), layer)[1]


@pytest.mark.parametrize(
    ("dropping", "modules", "n_below", "only_head"),
    [
        ((3,), ("8",), 4, True),
        ((2, 3), ("6", "9"), 3, False),
        ((0, 3), ("2", "9"), 1, False),
    ],
)
def test_the_layers_before_and_after_the_first_dropout(dropping, modules, n_below, only_head):
    places = places_of(layers(*dropping), torch.randn(1, 3))
    assert places.modules == modules
    assert (places.n_below, places.only_head) == (n_below, only_head)


def test_functional_dropout_in_a_head_of_linear_layers_above_convolutions():
    model, x = Classifier(), torch.randn(1, 1, 8, 8)
    places = places_of(model, x, model.conv2)
    assert places.only_head
    assert places.above_layer
    assert places.describe() == (
        "only the head is random: dropout is in the model's own forward, and the 3 layers before it are the same in "
        "all draws, and with them the values of the explained units"
    )
    below = places_of(Classifier(p_below=0.2), x)
    assert not below.only_head
    assert below.modules == ("maps", "")


def test_explain_warns_and_records_that_only_the_head_is_random():
    model, x = Classifier(), torch.randn(10, 1, 8, 8)
    with pytest.warns(geh.GEHWarning, match=r"only the head is random.*LastLayerLaplace") as warned:
        result = geh.GEHExplainer(model, "conv2", output="probability").explain(x, 0, groups=1, draws=3, progress=False)
    assert len(warned) == 1
    assert result.settings["random_part"].startswith("only the head is random")


def test_dropout_below_is_recorded_without_a_warning():
    model, x = Classifier(p_below=0.2), torch.randn(10, 1, 8, 8)
    result = geh.GEHExplainer(model, "conv1", output="probability").explain(x, 0, groups=1, draws=3, progress=False)
    assert result.settings["random_part"] == (
        "dropout is in 'maps', the model's own forward, and the layer before it is the same in all draws, and with "
        "them the values of the explained units"
    )


def test_other_posteriors_have_no_places():
    net, x = layers(3), torch.randn(20, 3)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    assert explainer.explain(x, groups=1, progress=False).settings["random_part"] is None
