"""Types of the keyword arguments of ``explain()``, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from geh_explain.run.options import Scale
from geh_explain.units.subset import Subset

#: Several outputs: a list, or outputs by name.
Targets = Sequence[int] | Sequence[tuple[int, ...]] | Mapping[str, int] | Mapping[str, tuple[int, ...]]


class ExplainOptions(TypedDict, total=False):
    """The keyword arguments that a call for one target and a call for several share; see ``GEHExplainer.explain``."""

    groups: Any
    clusters: Any
    sample_weight: Any
    draws: int | str
    names: Sequence[str] | None
    scale: Scale
    batch_size: int | None
    eah_points: int | None
    measures: Sequence[str] | None
    memory: float | None
    seed: int
    progress: bool
    checkpoint: str | os.PathLike[str] | None
    distributed: bool | str | None
    evidence: tuple[Any, Any] | None
    unit: int | str | None
    pairs: Sequence[tuple[int | str, int | str]] | None
    rows: Sequence[int | str] | Subset | str | None
