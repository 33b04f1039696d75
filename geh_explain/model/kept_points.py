"""Points with the values that the part below the layer passes on, so that it runs once per point."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from shutil import disk_usage
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._memory import budget_bytes
from geh_explain._process import SafeContext
from geh_explain.data.points import DerivedPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.model.below import Below, BelowTrace, NotReplayable, equal_up_to_rounding, record_below
from geh_explain.model.call_watch import CallWatch
from geh_explain.model.cut import Cut
from geh_explain.model.replay import Collector, forward_start
from geh_explain.model.snapshot import Snapshot
from geh_explain.model.view import View, forward_hook

#: Rows whose forward passes show what happens below the layer; all tensors of these passes are held.
_N_RECORDED = 3
#: Rows of each batch that are compared with whole forward passes of these rows alone.
_N_CHECKED = 3
#: Part of the memory that kept values may take; more are written to a temporary file.
_MEMORY_SHARE = 1 / 4
#: Part of the free space of the folder of temporary files that they may take there.
_DISK_SHARE = 1 / 4


class KeptPoints(DerivedPoints):
    """Points whose rows hold what the part of a model below the layer passes on.

    ``kept`` are tensors (n, ...) with one entry per point.
    """

    def __init__(self, points: Points, kept: tuple[Tensor, ...]) -> None:
        super().__init__(points)
        self._kept = kept

    @property
    def represented(self) -> int:
        """Number of points that these stand for."""
        return self._points.represented

    def batches(self) -> Iterator[Rows]:
        """Yield the rows, with what is kept below the layer."""
        for rows in self._points.batches():
            yield replace(rows, below=tuple(values[rows.start : rows.start + len(rows)] for values in self._kept))


def keep_below(cut: Cut, points: Points, batch_size: int | None, budget: int | None = None) -> Points:
    """Run the part below the layer once for all points, and return them with what it passes on.

    Later forward passes of ``cut`` over these points start at the layer. Returns ``points`` unchanged where that is not
    possible: at the inputs, or if the part below depends on values in ways that cannot be repeated, or where neither
    memory nor disk has room.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    points
        All points.
    batch_size
        Rows per forward pass, None for the default.
    budget
        Bytes of memory that the run may use; None for half of what is free.
    """
    # Hooks of the user's would get tensors without values; one row does not show which dimensions are those of rows.
    if cut.layer is None or _has_hooks(cut.model) or len(points.first) < 2:
        return points
    try:
        example = _record(cut, points.first[:_N_RECORDED])
        share = (budget_bytes(None) if budget is None else budget) // len(example)
        kept = tuple(_allocate(values, len(points), share) for values in example)
        for rows in points.split(batch_size):
            found = _run(cut, rows)
            _check_some(cut, replace(rows, below=found))
            for values, part in zip(kept, found, strict=True):
                values[rows.start : rows.start + len(rows)] = part
    except NotReplayable:
        cut.below = None
        return points
    return KeptPoints(points, kept)


def _has_hooks(model: nn.Module) -> bool:
    """Return whether a module has hooks, or all modules of the process have."""
    of_all = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    return bool(of_all) or any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def _check_some(cut: Cut, rows: Rows) -> None:
    """Raise unless some rows of a batch with kept values have these values, and the same outputs, by themselves."""
    chosen = random.Random(rows.start).sample(range(len(rows)), min(_N_CHECKED, len(rows)))
    some = rows.take(sorted(chosen))
    if not equal_up_to_rounding(some.below, _run(cut, some)):
        raise NotReplayable("rows depend on each other")
    replayed = cut.all_outputs(some, cut.zeros(some))
    if cut.below is None or not equal_up_to_rounding([replayed], [cut.all_outputs(some)]):
        raise NotReplayable("the outputs differ")


@torch.no_grad()
def _record(cut: Cut, rows: Rows) -> tuple[Tensor, ...]:
    """Set ``cut.below`` after forward passes over a few rows, and return what is passed on for these.

    The outputs must be those of the model itself also where the part below the layer is left out.
    """
    traces = BelowTrace(), BelowTrace()
    snapshot = Snapshot(cut.model)
    with SafeContext(snapshot.guarded()):
        for trace, part in zip(traces, (rows, rows[:-1]), strict=True):
            with cut.viewed(trace), forward_start(cut.model, trace), SafeContext(CallWatch()) as watch:
                cut.all_outputs(part, cut.zeros(part))
            if any(watch.has_written(tensor) for tensor in trace.inputs.values()):
                raise NotReplayable("the inputs are changed in place")
        expected = cut.all_outputs(rows)
    if snapshot.changes():
        raise NotReplayable("a forward pass changes the model")
    cut.below = record_below(traces[0], len(rows), traces[1], len(rows) - 1)
    values = _run(cut, rows)
    replayed = cut.all_outputs(replace(rows, below=values), cut.zeros(rows))
    if cut.below is None or not torch.equal(replayed, expected):
        raise NotReplayable("the outputs differ")
    return values


@torch.no_grad()
def _run(cut: Cut, rows: Rows) -> tuple[Tensor, ...]:
    """Run the part below the layer, and return what it passes on, each of shape (n, ...)."""
    assert cut.below is not None
    collector = Collector(cut.below, len(rows))
    with forward_start(cut.model, collector), SafeContext(collector):
        cut.activations_with_grad(rows)
    return collector.values()


@torch.no_grad()
def output_of_row(cut: Cut, row: Rows, below: Below | None, *, unchanged: bool = False) -> Tensor:
    """Return the output (1,) of the first row in a draw, and set ``cut.below`` if its kept values still hold.

    They do not if the draw has changed what is below the layer: its weights, or its random masks. Where this cannot be,
    ``unchanged``, the part below is not run.
    """
    if below is None or cut.layer is None:
        return cut.outputs(row)
    if unchanged:
        with cut.viewed(View()):
            return cut.outputs(row, cut.zeros(row))
    trace = BelowTrace()
    n_calls, holds = 0, False

    def reach(module: nn.Module, args: Any, out: Any) -> None:
        nonlocal n_calls, holds
        n_calls += trace.started
        if n_calls > (cut.layer_ref.call or 0) and not trace.active:
            trace.enter((), ())
            # Compared here: the part above may change tensors in place.
            holds = below.holds(trace, row.below)

    with forward_start(cut.model, trace), forward_hook(cut.layer, reach), SafeContext(trace):
        output = cut.outputs(row)
    cut.below = below if holds else None
    return output


def _allocate(example: Tensor, n_points: int, budget: int) -> Tensor:
    """Return an empty tensor (n_points, ...) with rows like those of ``example``, in memory or in a temporary file.

    The file is deleted by the system as soon as nothing refers to it.
    """
    shape = (n_points, *example.shape[1:])
    n_bytes = prod(shape) * example.element_size()
    if n_bytes <= budget * _MEMORY_SHARE or example.device.type != "cpu":
        return torch.empty(shape, dtype=example.dtype, device=example.device)
    try:
        if n_bytes > disk_usage(tempfile.gettempdir()).free * _DISK_SHARE:
            raise NotReplayable("there is no room for the values below the layer")
        with tempfile.TemporaryFile() as file:
            if hasattr(os, "posix_fallocate"):
                # The system kills a process that writes to mapped memory for which the disk has no room.
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            numbers = np.memmap(file, dtype=np.uint8, mode="w+", shape=(n_bytes,))
    except OSError as error:
        raise NotReplayable("there is no room for the values below the layer") from error
    return torch.from_numpy(numbers).view(example.dtype).reshape(shape)
