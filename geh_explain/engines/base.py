"""The contract of an engine: sums of local interactions over groups."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut


def refuse_not_finite(sums: Tensor | None, rows: Rows) -> None:
    """Refuse sums that are NaN or infinite since ``rows`` were added."""
    if sums is not None and not bool(torch.isfinite(sums).all()):
        raise GEHRuntimeError(
            f"some second derivatives are NaN or infinite in rows {rows.start} to {rows.start + len(rows) - 1}; a "
            "function in the model has none there (square roots and norms at 0, for instance). Move such rows, or "
            "add a small constant inside the function."
        )


class Engine(ABC):
    """Computes local interactions and adds them up by group.

    An engine of your own says how many rows it takes at once and adds their interactions; ``cut.outputs(rows,
    t)`` is the function whose mixed second derivatives in ``t`` are wanted.

    >>> import torch, geh_explain as geh
    >>> class Constant(geh.engines.Engine):
    ...     name = "constant"
    ...     def chunk_rows(self, cut, rows):
    ...         return 100
    ...     def add(self, sums, cut, rows, labels):
    ...         sums.add(0, torch.ones(len(rows), cut.count * (cut.count - 1) // 2), sums.one_hot(labels, cut.device))
    >>> explainer = geh.GEHExplainer(lambda x: x.sum(1), engine=Constant(), posterior=geh.posterior.PointEstimate())
    >>> explainer.explain(torch.randn(20, 2), groups=1, progress=False).geh.mean.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    #: What ``result.settings["engine"]`` says.
    name: str
    #: Whether it takes second derivatives, so that kinks must be smoothed.
    smooth = True
    #: Whether rows may come under several draws at once.
    takes_several_draws = False
    #: How many bytes the user allows in all; None for a share of what is free.
    memory: int | None = None
    #: How many points the absolute interactions of a draw are taken from; None for all.
    absolute_points: int | None = None

    def prepare(self, cut: Cut, points: Points, batch_size: int | None) -> None:  # noqa: B027
        """Look at the data once, before the first draw."""

    def start(self, seed: int) -> None:  # noqa: B027
        """Begin a draw."""

    def adapt(self, cut: Cut, rows: Rows) -> None:  # noqa: B027
        """Look at the network of a draw, the first time and whenever it may be another one."""

    def outcome(self, reason: str) -> tuple[str, str]:
        """Return the name of the engine that did the work, and why; ``reason`` is why this one was chosen."""
        return self.name, reason

    def finish(self, sums: GroupSums, cut: Cut) -> None:  # noqa: B027
        """End a draw, after all of its rows."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def chunk_rows(self, cut: Cut, rows: Rows) -> int:
        """Return how many rows fit into memory at once."""

    @abstractmethod
    def add(self, sums: GroupSums, cut: Cut, rows: Rows, labels: NDArray[np.int64]) -> None:
        """Add the local interactions of a chunk of rows to ``sums``.

        ``labels`` (n,) are the rows' groups. Where several draws come at once, ``rows`` are n rows for each of them.
        """
