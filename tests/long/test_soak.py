"""Two hundred explanations of many kinds in one process: memory, files, threads, tensors and hooks do not grow."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from explaining import explain_draws
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain import posterior as posteriors

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the /proc of Linux"),
]

ALL, WARM_UP = 200, 40
#: What the process may grow by after the warm-up, in MB.
ROOM = 30


# What is counted.


@dataclass(frozen=True)
class Footprint:
    megabytes: float
    threads: int
    tasks: int
    files: int
    tensors: int
    figures: int


def footprint() -> Footprint:
    """Look at the process, once all that can be freed is freed."""
    plt.close("all")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Footprint(
        megabytes=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        threads=threading.active_count(),
        tasks=len(os.listdir("/proc/self/task")),
        files=len(os.listdir("/proc/self/fd")),
        tensors=sum(issubclass(type(thing), Tensor) for thing in gc.get_objects()),
        figures=len(plt.get_fignums()),
    )


def hooks(model: nn.Module) -> int:
    tables = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, table)) for module in model.modules() for table in tables)


# What is explained.


def table_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
    )


def image_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(24, 3),
    )


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
        self.recurrent = nn.GRU(6, 5, batch_first=True)
        self.head = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.recurrent(self.attention(x))[0][:, -1]))


class Noisy(nn.Module):
    """Draws its own weights in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.first.weight + 0.1 * torch.randn_like(self.first.weight)
        return self.last(torch.tanh(x @ weight.T + self.first.bias))


class World:
    """Models, data, and a round of things that people do with them."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.folder = folder
        self.table, self.images = table_network().eval(), image_network().eval()
        self.sequences, self.noisy = Sequences().eval(), Noisy().eval()
        self.others = [table_network().eval() for _ in range(3)]
        self.x, self.pictures, self.tokens = torch.randn(60, 8), torch.randn(30, 1, 8, 8), torch.randn(20, 4, 6)
        self.states = [
            {name: value + 0.05 * torch.randn_like(value) for name, value in self.table.state_dict().items()}
            for _ in range(4)
        ]

    @property
    def models(self) -> list[nn.Module]:
        return [self.table, self.images, self.sequences, self.noisy, *self.others]

    def round(self) -> list[Callable[[int], object]]:
        return [
            self.inputs_with_dropout,
            self.hidden_units_of_a_table,
            self.channels_of_images,
            self.patches_of_images,
            self.attention,
            self.recurrence,
            self.an_ensemble,
            self.weight_samples,
            self.own_weights,
            self.exact_engine,
            self.differences,
            self.stein,
            self.little_memory,
            self.a_loader,
            self.pictures_of_a_result,
            self.a_report,
            self.a_saved_result,
            self.exemplars,
            self.a_choice_of_groups,
            self.a_bad_target,
            self.a_model_that_fails,
        ]

    # Each is one explanation, or one that fails.

    def inputs_with_dropout(self, number: int) -> None:
        explain_draws(self.table, self.x, 0, groups="auto", draws=22, seed=number)

    def hidden_units_of_a_table(self, number: int) -> None:
        explain_draws(self.table, self.x, 1, layer="1", output="probability", scale="std", seed=number, groups=2)

    def channels_of_images(self, number: int) -> None:
        explain_draws(self.images, self.pictures, number % 3, layer="4", seed=number, groups=2)

    def patches_of_images(self, number: int) -> None:
        explain_draws(
            self.images, self.pictures, 1, units=geh.units.Patches(4), posterior=posteriors.MCDropout(), groups=2
        )

    def attention(self, number: int) -> None:
        explain_draws(self.sequences, self.tokens, layer="attention", units=geh.units.Tokens(), groups=2)

    def recurrence(self, number: int) -> None:
        explain_draws(self.sequences, self.tokens, layer="recurrent", posterior=posteriors.PointEstimate(), groups=2)

    def an_ensemble(self, number: int) -> None:
        explain_draws(self.table, self.x, 0, posterior=posteriors.Ensemble(self.others), groups=2)

    def weight_samples(self, number: int) -> None:
        explain_draws(
            self.table, self.x, 0, posterior=posteriors.WeightSamples(self.states), engine="structured", groups=2
        )

    def own_weights(self, number: int) -> None:
        explain_draws(self.noisy, self.x, posterior=posteriors.Stochastic(), seed=number, groups=2)

    def exact_engine(self, number: int) -> None:
        explain_draws(self.table, self.x, 0, engine="exact", batch_size=7, groups=2)

    def differences(self, number: int) -> None:
        explain_draws(lambda x: np.sin(x.numpy()[:, 0] * x.numpy()[:, 1]), self.x[:, :3], groups=2)

    def stein(self, number: int) -> None:
        explain_draws(self.table, self.x, 0, engine="stein", groups=2)

    def little_memory(self, number: int) -> None:
        explain_draws(self.table, self.x, 0, memory=1e-5, groups=2)

    def a_loader(self, number: int) -> None:
        loader = DataLoader(TensorDataset(self.x), batch_size=16, shuffle=True)
        explain_draws(self.table, loader, 0, groups=2)

    def pictures_of_a_result(self, number: int) -> None:
        result = explain_draws(self.table, self.x, 0, groups=2)
        for draw in (
            result.plot.heatmap,
            result.plot.intervals,
            result.plot.network,
            lambda: result.plot.regions(0, 1),
        ):
            draw()
            plt.gcf().canvas.draw()
            plt.close("all")

    def a_report(self, number: int) -> None:
        result = explain_draws(self.table, self.x, 0, groups=2)
        assert Path(result.report(self.folder / "page.html")).stat().st_size > 10_000

    def a_saved_result(self, number: int) -> None:
        result = explain_draws(self.table, self.x, 0, groups=2)
        again = geh.Interactions.load(result.save(self.folder / "result.npz"))
        np.testing.assert_array_equal(again.geh.draws, result.geh.draws)

    def exemplars(self, number: int) -> None:
        explainer = geh.GEHExplainer(self.images, "4")
        result = explainer.explain(self.pictures, 1, groups=2, draws=4, progress=False)
        gallery = explainer.interpret(
            result, self.pictures, pairs=1, k=3, ascent={"steps": 3} if number % 2 else False, progress=False
        )
        gallery.plot()
        plt.close("all")

    def a_choice_of_groups(self, number: int) -> None:
        geh.GEHExplainer(self.table).choose_groups(self.x, 0, max_groups=6, draws=3, progress=False).plot()
        plt.close("all")

    def a_bad_target(self, number: int) -> None:
        with pytest.raises(geh.GEHError, match="out of range"):
            explain_draws(self.table, self.x, 7, groups=2)

    def a_model_that_fails(self, number: int) -> None:
        calls = 0

        def fail(module: nn.Module, args: object) -> None:
            nonlocal calls
            calls += 1
            if calls > 5 + number % 7:
                raise ZeroDivisionError("in the middle of a forward")

        handle = self.table[3].register_forward_pre_hook(fail)
        try:
            with pytest.raises(ZeroDivisionError, match="in the middle"):
                explain_draws(self.table, self.x, 0, layer="1", batch_size=5, engine="exact", groups=2)
        finally:
            handle.remove()


def test_two_hundred_explanations_leave_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    things = world.round()
    early = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        for number in range(ALL):
            if number == WARM_UP:
                early = footprint()
            things[number % len(things)](number)
            assert [hooks(model) for model in world.models] == [0] * len(world.models)
    late = footprint()
    assert early is not None
    with capsys.disabled():
        print(f"\nafter {WARM_UP}: {early}\nafter {ALL}: {late}")
    assert late.megabytes - early.megabytes < ROOM
    assert late.threads <= early.threads
    assert late.tasks <= early.tasks
    assert late.files <= early.files
    assert late.tensors <= early.tensors
    assert late.figures == 0
