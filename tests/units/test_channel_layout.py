"""The channel dimension follows from the layer or its neighbours; otherwise there is a warning."""

import pytest
import torch
from explaining import explain_point, random_points
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


@pytest.mark.parametrize(
    ("make", "layer", "shape", "channels"),
    [
        (Bare, "act", (2, 3, 3), 5),
        (
            lambda: nn.Sequential(nn.Conv1d(2, 5, 1), nn.Tanh(), nn.Flatten(), nn.Linear(15, 4), nn.Softmax(1)),
            "1",
            (2, 3),
            5,
        ),
        (
            lambda: nn.Sequential(nn.Conv2d(2, 5, 1), nn.Tanh(), nn.Flatten(), nn.Linear(45, 4), nn.Softmax(1)),
            "1",
            (2, 3, 3),
            5,
        ),
        # Registered before its neighbour, and beside one of another width.
        (
            lambda: nn.Sequential(nn.Tanh(), nn.LayerNorm(4), nn.Flatten(), nn.Linear(36, 4), nn.Softmax(1)),
            "0",
            (3, 3, 4),
            4,
        ),
    ],
)
def test_a_bare_activation_has_the_channels_of_its_neighbours(make, layer, shape, channels, recwarn) -> None:
    result = explain_point(
        make(), random_points(4, *shape, dtype=torch.float), layer=layer, output=lambda out: out[:, 0]
    )
    assert len(result.names) == channels
    assert not [warning for warning in recwarn if "holds its channels" in str(warning.message)]


def test_a_guessed_channel_dimension_gives_a_warning() -> None:
    with pytest.warns(
        geh.GEHWarning, match=r"\(batch, 3, 3, 15\), holds its channels, and Channels\(dim=1\) was taken"
    ):
        explain_point(Bare(), random_points(4, 2, 3, 3, dtype=torch.float), layer="odd", output="probability")


def test_an_explicit_channel_dimension_gives_no_warning(recwarn) -> None:
    x, units = random_points(4, 2, 3, 3, dtype=torch.float), geh.units.Channels(dim=-1)
    assert len(explain_point(Bare(), x, layer="odd", output="probability", units=units).names) == 15
    assert not [warning for warning in recwarn if "holds its channels" in str(warning.message)]


def test_the_channel_dimension_follows_from_the_parts_of_a_layer():
    channels = geh.units.Channels()
    swin = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())
    convnext = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.LayerNorm(8), nn.Linear(8, 8))
    layer_norm_2d = type("LayerNorm2d", (nn.LayerNorm,), {})(8)
    for module, shape, dim in (
        (swin, (4, 4, 8), -1),
        (convnext, (8, 4, 4), 1),
        (layer_norm_2d, (8, 4, 4), 1),
        (nn.Linear(8, 8), (4, 4, 8), -1),
        (nn.ReLU(), (8, 4, 4), 1),
        (nn.ReLU(), (5, 8), -1),
        (nn.Conv1d(8, 8, 1), (8, 5), 1),
        (nn.Conv2d(8, 8, 1), (8, 4, 4), 1),
    ):
        assert channels.bind(shape, module, None).dim == dim
