"""The contract of an engine: a frozen description, and an object per run that adds up local interactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    Attributes
    ----------
    n_points
        Number of points that are explained.
    batch_size
        Rows per chunk as the user asked for; None lets the engine choose.
    memory
        Bytes that the user allows in all; None for a share of the free memory.
    eah_points
        Number of points per draw from which absolute interactions are measured; None lets the engine choose.
    """

    n_points: int
    batch_size: int | None = None
    memory: int | None = None
    eah_points: int | None = None


class Engine(ABC):
    """Description of a way to compute local interactions d2 f / dt_i dt_j.

    An instance holds settings only and never changes, so it can be passed to any number of explainers and calls.
    :meth:`start` makes the :class:`EngineRun` that holds the state of one run.

    >>> import torch, geh_explain as geh
    >>> class ConstantRun(geh.engines.EngineRun):
    ...     def chunk_rows(self, rows):
    ...         return 100
    ...     def add(self, sums, rows, labels):
    ...         n_pairs = self.cut.n_units * (self.cut.n_units - 1) // 2
    ...         sums.add(0, torch.ones(len(rows), n_pairs), sums.one_hot(labels, self.cut.device))
    >>> class Constant(geh.engines.Engine):
    ...     name = "constant"
    ...     def start(self, cut, limits):
    ...         return ConstantRun(self, cut, limits)
    >>> explainer = geh.GEHExplainer(lambda x: x.sum(1), engine=Constant(), posterior=geh.posterior.PointEstimate())
    >>> explainer.explain(torch.randn(20, 2), groups=1, progress=False).geh.mean.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    #: What ``result.settings["engine"]`` says.
    name: str
    #: Whether it takes second derivatives, so that kinked functions must be smoothed.
    differentiates = True

    @abstractmethod
    def start(self, cut: Cut, limits: Limits) -> EngineRun:
        """Return the object that computes the interactions of one run."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class EngineRun(ABC):
    """State of an engine during one run.

    The calls come in this order. Before the first draw: :meth:`observe` for all rows if ``needs_values``. For each draw:
    :meth:`begin_draw`, :meth:`adapt` where the network may differ from that of the draw before, :meth:`chunk_rows` and
    :meth:`add` for all chunks of rows, :meth:`end_draw`. ``self.cut.outputs(rows, t)`` is the function whose mixed second
    derivatives in ``t`` (n, D) at 0 are wanted.
    """

    #: Whether rows may be repeated to compute several draws at once.
    batches_draws = False
    #: Whether :meth:`observe` must be called with the values of the units before the first draw.
    needs_values = False

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        self.engine = engine
        self.cut = cut
        self.limits = limits

    @property
    def name(self) -> str:
        """Name of the engine that does the work."""
        return self.engine.name

    @property
    def fallback_reason(self) -> str | None:
        """Why another engine than the chosen one does the work, None where it does not."""
        return None

    @property
    def n_eah_points(self) -> int:
        """Number of points per draw from which absolute interactions are measured."""
        return self.limits.n_points

    def observe(self, values: Tensor) -> None:  # noqa: B027
        """Take the values (n, D) of the units in some rows, in the order of the rows."""

    def begin_draw(self, seed: int) -> None:  # noqa: B027
        """Start a draw."""

    def adapt(self, rows: Rows) -> None:  # noqa: B027
        """Examine the network of a draw on a few rows."""

    def end_draw(self, sums: GroupSums) -> None:  # noqa: B027
        """Finish a draw, after all of its rows were added."""

    @abstractmethod
    def chunk_rows(self, rows: Rows) -> int:
        """Return how many rows fit into memory at once."""

    @abstractmethod
    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``.

        ``labels`` (n,) are the groups of the rows. Where several draws are computed at once, ``rows`` holds n rows for
        each of them, one draw after the other.
        """


def refuse_not_finite(sums: Tensor | None, rows: Rows) -> None:
    """Raise if ``sums`` are NaN or infinite since ``rows`` were added."""
    if sums is not None and not bool(torch.isfinite(sums).all()):
        raise GEHRuntimeError(
            f"some second derivatives are NaN or infinite in rows {rows.start} to {rows.start + len(rows) - 1}; a "
            "function in the model has none there (square roots and norms at 0, for instance). Move such rows, or "
            "add a small constant inside the function."
        )
