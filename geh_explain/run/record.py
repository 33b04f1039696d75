"""What a run was asked for and what it did, in values that JSON can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._version import __version__
from geh_explain.engines import Difference
from geh_explain.model.outputs import Output
from geh_explain.run.plan import Job


def settings_of(job: Job, output: Output, smooth: Any) -> dict[str, Any]:
    """Return what a run worked on, as plain values."""
    engine, reason = job.engine.outcome(job.reason)
    return {
        "geh_explain": __version__,
        "torch": torch.__version__,
        "model": type(job.cut.model).__name__,
        "place": job.cut.place,
        "layer": job.cut.name or None,
        "pick": describe(job.cut.site.pick),
        "call": job.cut.site.call,
        "units": repr(job.cut.units),
        "output": describe(output),
        "posterior": _named(job.posterior),
        "engine": engine,
        "engine_settings": repr(job.engine),
        "engine_reason": reason,
        "jumping_units": sorted(job.engine.jumps) if isinstance(job.engine, Difference) else None,
        "smooth": describe(smooth),
        "smoothed": job.smoothed,
        "device": str(job.cut.device),
        "dtype": str(job.cut.dtype).removeprefix("torch."),
        "points": len(job.points),
    }


def _named(posterior: Any) -> str:
    """Return how a posterior calls itself; a user's own need not say."""
    plain = getattr(type(posterior), "__repr__", None) is object.__repr__
    return f"{type(posterior).__name__}()" if plain else repr(posterior)


def describe(value: Any) -> Any:
    """Return ``value`` as it is if JSON can hold it, else in words."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [describe(entry) for entry in value] if len(value) <= 1000 else f"{len(value)} values"
    return repr(value)
