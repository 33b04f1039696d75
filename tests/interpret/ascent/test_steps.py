"""Steps of gradient ascent, and when an objective has settled."""

import pytest
import torch
from torch import nn

from geh_explain.interpret import maximise
from geh_explain.interpret.ascent.steps import WINDOW, Adam, ScoreHistory


def test_adam_takes_the_steps_of_torch():
    generator = torch.Generator().manual_seed(0)
    parameters = torch.zeros(3, 4, requires_grad=True)
    optimiser = torch.optim.Adam([parameters], lr=0.1)
    adam, ours = Adam(0.1), torch.zeros(3, 4)
    for _ in range(5):
        gradient = torch.randn(3, 4, generator=generator)
        parameters.grad = -gradient  # torch descends
        optimiser.step()
        ours = ours + adam(gradient)
    torch.testing.assert_close(ours, parameters.detach())


def test_adam_keeps_the_state_of_the_rows_that_are_left():
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(3, 4, generator=generator) for _ in range(4)]
    rows = torch.tensor([True, False, True])
    whole, part = Adam(0.1), Adam(0.1)
    for step, gradient in enumerate(gradients):
        expected = whole(gradient)
        if step == 2:
            part.keep(rows)
        actual = part(gradient if step < 2 else gradient[rows])
    torch.testing.assert_close(actual, expected[rows])


def settled_after(scores, tolerance):
    history = ScoreHistory(1, tolerance)
    for step, score in enumerate(scores, start=1):
        if bool(history.add(torch.tensor([0]), torch.tensor([score]), torch.tensor([score]))):
            return step
    return None


def test_an_objective_settles_where_its_mean_over_a_window_stops_rising():
    rising_then_flat = [min(step, 40) / 40 for step in range(200)]
    # The means of the windows of 16 steps are 0.1875, 0.5875, 0.94375, 1, 1, ...: the fourth rises by 0.05625.
    assert settled_after(rising_then_flat, 0.06) == 4 * WINDOW
    assert settled_after(rising_then_flat, 0.05) == 5 * WINDOW
    assert settled_after(rising_then_flat, 1e-6) == 5 * WINDOW
    assert settled_after([step / 200 for step in range(200)], 0.05) is None
    assert settled_after(rising_then_flat, 0.0) is None


def conv_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4 * 64, 1)).eval()


@pytest.mark.parametrize("batch_size", [1, 2])
def test_settled_images_leave_the_batch_and_change_no_other(batch_size):
    options = {"shape": (1, 12, 12), "limits": (0, 1), "steps": 200, "tolerance": 0.05, "progress": False}
    together = maximise(conv_net(), "2", [0, 1, (2, 3)], **options)
    split = maximise(conv_net(), "2", [0, 1, (2, 3)], batch_size=batch_size, **options)
    assert together.steps.tolist() == split.steps.tolist()
    assert len(set(together.steps.tolist())) > 1
    torch.testing.assert_close(together.inputs, split.inputs, atol=1e-3, rtol=0)


def test_all_steps_are_taken_without_a_tolerance():
    options = {"shape": (1, 12, 12), "limits": (0, 1), "steps": 70, "progress": False}
    assert maximise(conv_net(), "2", [0, 1], tolerance=0, **options).steps.tolist() == [70, 70]


class Counted(nn.Module):
    """Counts the rows that pass."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def forward(self, x):
        self.rows.append(len(x))
        return x


def test_the_part_above_the_layer_does_not_run_and_single_units_need_no_reference_pass():
    below, above = Counted(), Counted()
    net = nn.Sequential(below, nn.Linear(4, 3), above, nn.Linear(3, 1)).eval()
    rows = below.rows, above.rows
    maximise(net, "1", [0, 1], shape=(4,), limits=(0, 1), steps=10, tolerance=0, progress=False)
    n_trial = rows[0][:-11]
    assert rows[0][-11:] == [2] * 11  # ten steps and the final inputs
    assert sum(n_trial) <= 8
    assert len(rows[1]) <= 1  # one trial of the whole network


class Viewed(nn.Module):
    """Flattens feature maps by ``view``, which needs contiguous ones."""

    def forward(self, x):
        return x.view(len(x), -1)


def test_large_images_of_a_network_that_needs_contiguous_maps():
    net = nn.Sequential(nn.Conv2d(3, 2, 9, stride=8), Viewed(), nn.Linear(2 * 64, 3)).eval()
    found = maximise(net, "2", 0, shape=(3, 72, 72), limits=(0, 1), steps=3, progress=False)
    assert found.inputs.shape == (1, 3, 72, 72)
