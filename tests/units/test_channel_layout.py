"""The channel dimension comes from the layer or its neighbours; where neither shows it, there is a warning."""

import pytest
import torch
from torch import Tensor, nn

import geh_explain as geh


class Bare(nn.Module):
    """Two bare activations: ``act`` follows a channels-last layer; no layer shows the layout of ``odd``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.odd = nn.Linear(2, 5), nn.Tanh(), nn.Tanh()
        self.last = nn.Linear(3 * 3 * 15, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.act(self.first(x.permute(0, 2, 3, 1)))
        return self.last(self.odd(hidden.repeat(1, 1, 1, 3)).flatten(1))


def _explained(model: nn.Module, layer: str, shape: tuple[int, ...], **options: object) -> geh.Interactions:
    explainer = geh.GEHExplainer(model, layer, posterior=geh.posterior.PointEstimate(), **options)
    return explainer.explain(torch.randn(4, *shape), groups=1, progress=False)


@pytest.mark.parametrize(
    ("model", "layer", "shape", "channels"),
    [
        (Bare(), "act", (2, 3, 3), 5),
        (nn.Sequential(nn.Conv1d(2, 5, 1), nn.Tanh(), nn.Flatten(), nn.Linear(15, 4), nn.Softmax(1)), "1", (2, 3), 5),
        (
            nn.Sequential(nn.Conv2d(2, 5, 1), nn.Tanh(), nn.Flatten(), nn.Linear(45, 4), nn.Softmax(1)),
            "1",
            (2, 3, 3),
            5,
        ),
        # Registered before its neighbour, and beside one of another width.
        (nn.Sequential(nn.Tanh(), nn.LayerNorm(4), nn.Flatten(), nn.Linear(36, 4), nn.Softmax(1)), "0", (3, 3, 4), 4),
    ],
)
def test_a_bare_activation_has_the_channels_of_its_neighbours(model, layer, shape, channels, recwarn) -> None:
    options = {"output": lambda out: out[:, 0]}
    assert len(_explained(model, layer, shape, **options).names) == channels
    assert not [warning for warning in recwarn if "holds its channels" in str(warning.message)]


def test_a_guessed_channel_dimension_gives_a_warning() -> None:
    with pytest.warns(
        geh.GEHWarning, match=r"\(batch, 3, 3, 15\), holds its channels, and Channels\(dim=1\) was taken"
    ):
        _explained(Bare(), "odd", (2, 3, 3), output="probability")


def test_an_explicit_channel_dimension_gives_no_warning(recwarn) -> None:
    assert len(_explained(Bare(), "odd", (2, 3, 3), output="probability", units=geh.units.Channels(dim=-1)).names) == 15
    assert not [warning for warning in recwarn if "holds its channels" in str(warning.message)]
