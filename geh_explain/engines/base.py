"""The contract of an engine: a frozen description, and an object per run that sums local interactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.compared_networks import ComparedNetworks
from geh_explain.engines.probes import PartChoice
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut
from geh_explain.model.row_independence import check_parts
from geh_explain.units.pair_set import PairSet

#: Points per draw from which sampling errors are estimated where EAH is not wanted: so many in all and per group.
_MIN_POINTS = 4
_POINTS_PER_GROUP = 2


@dataclass(frozen=True)
class Limits:
    """Resources of one run.

    Attributes
    ----------
    n_points
        Number of points that are explained.
    batch_size
        Rows per chunk as passed by the user; None lets the engine choose.
    memory
        Bytes that the user allows in all; None for a share of the free memory.
    eah_points
        Number of points per draw from which absolute interactions are measured; None lets the engine choose.
    pairs
        The pairs of units that are computed; None for all of them.
    weights
        Case weights (n_points,) with mean 1, None where all points count alike. The rows that :meth:`EngineRun.add`
        receives have theirs; an engine needs these for statistics of its own.
    names
        Names of the units, if they are known.
    by_pair
        Whether each pair has groups of its own, so that sums need the local interactions of each point.
    measures_eah
        Whether EAH is wanted. If not, and ``eah_points`` is None, an engine for which absolute interactions are extra
        work measures them at a few points only, from which the sampling errors are estimated.
    n_groups
        Number of groups of points, as far as it is known.
    compared
        Networks at which engines were compared in earlier calls of the explainer; None without any memory of these.
    """

    n_points: int
    batch_size: int | None = None
    memory: int | None = None
    eah_points: int | None = None
    pairs: PairSet | None = None
    weights: Floats | None = None
    names: Sequence[str] | None = None
    by_pair: bool = False
    measures_eah: bool = True
    n_groups: int = 1
    compared: ComparedNetworks | None = None

    def fewest_points(self, fitting: int) -> int:
        """Return at how many points per draw absolute interactions are measured; ``fitting`` is what time allows.

        The sampling errors of the points come from the same points, also where EAH is not wanted.

        >>> Limits(n_points=50).fewest_points(25), Limits(n_points=50, measures_eah=False).fewest_points(25)
        (25, 4)
        """
        if not self.measures_eah:
            fitting = min(fitting, max(_MIN_POINTS, _POINTS_PER_GROUP * self.n_groups))
        return min(self.n_points, fitting)


class Engine(ABC):
    """Description of a way to compute local interactions d2 f / dt_i dt_j, i < j, at t = 0.

    f(x, t) is the model as a function of the units' shifts t (n, D), see :class:`Cut`. An instance holds settings only
    and never changes, so it can be passed to any number of explainers and calls. :meth:`start` makes the
    :class:`EngineRun` that holds the state of one run.

    Attributes
    ----------
    name
        Name in ``result.settings["engine"]``.
    differentiates
        Whether the engine takes second derivatives, so that kinked functions must be smoothed. True by default.

    Examples
    --------
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

    name: str
    differentiates = True

    @abstractmethod
    def start(self, cut: Cut, limits: Limits) -> EngineRun:
        """Return the object that computes the interactions of one run."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class EngineRun(ABC):
    """State of an engine during one run.

    The calls come in this order. Before the first draw: :meth:`observe` for all rows if ``needs_values``, then
    :meth:`prepare`. For each draw: :meth:`begin_draw`, :meth:`adapt` where the network may differ from that of the draw
    before, :meth:`chunk_rows` and :meth:`add` for all chunks of rows, :meth:`end_draw`. A subclass defines
    :meth:`chunk_rows` and :meth:`add`; the others do nothing by default.

    Parameters
    ----------
    engine
        The description that started the run.
    cut
        The model as a function of the units' shifts: ``cut.outputs(rows, t)`` is f(x, t).
    limits
        Resources of the run.

    Attributes
    ----------
    batches_draws
        Whether :meth:`add` accepts rows that are repeated, once for each of several draws. False by default.
    needs_values
        Whether :meth:`observe` must be called with the units' values before the first draw. False by default.
    refuted
        Whether a check found that the interactions of this run are wrong. All draws are then computed again after a
        call of :meth:`fall_back`. False by default.
    doubtful
        Whether autograd's second derivatives contradict differences of its gradients. False by default.
    takes_pairs
        Whether :meth:`add` computes the pairs of :attr:`pairs` only, for which ``sums`` then have room. If False, the
        default, it computes all pairs, and those that were asked for are selected at the end of a draw.
    """

    takes_pairs = False
    batches_draws = False
    needs_values = False
    refuted = False
    doubtful = False

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        self.engine = engine
        self.cut = cut
        self.limits = limits
        self._advance: Callable[[float], object] | None = None

    @cached_property
    def pairs(self) -> PairSet:
        """The pairs of units that are computed: all of them, or those of ``limits.pairs``."""
        return PairSet.all(self.cut.n_units) if self.limits.pairs is None else self.limits.pairs

    @cached_property
    def chunk_bytes(self) -> int:
        """Bytes that one chunk of rows may take; the same during the whole run, so that chunks stay the same."""
        return chunk_bytes(self.cut.device, self.limits.memory)

    @property
    def name(self) -> str:
        """Name of the engine that computes the interactions; another one than ``engine.name`` after a fallback."""
        return self.engine.name

    @property
    def fallback_reason(self) -> str | None:
        """Why another engine than the chosen one computes the interactions; None without a fallback."""
        return None

    @property
    def n_eah_points(self) -> int:
        """Number of points per draw from which absolute interactions are measured; all of them by default."""
        return self.limits.n_points

    @cached_property
    def _part_choice(self) -> PartChoice:
        return PartChoice(self.limits.n_points)

    def check_outputs(self, rows: Rows, t: Tensor, outputs: Tensor) -> None:
        """Refuse a model whose outputs depend on the batch, on gradients or on chance; for use in :meth:`add`.

        ``outputs`` (n,) are those of a chunk at the shifts ``t`` (n, D). In some chunks they are compared with the
        outputs of a few rows in a batch of their own, without gradients.
        """
        check_parts(self.cut, rows, t, outputs.detach(), self._part_choice.parts(rows))

    @contextmanager
    def reporting(self, advance: Callable[[float], object]) -> Iterator[None]:
        """Let :meth:`add` tell ``advance`` how many rows, or parts of a row, are finished, within the context."""
        self._advance = advance
        try:
            yield
        finally:
            self._advance = None

    def report(self, rows: float) -> None:
        """Tell that so many rows are finished; for use in :meth:`add` where a chunk takes long."""
        if self._advance is not None:
            self._advance(rows)

    def observe(self, values: Tensor) -> None:  # noqa: B027
        """Take the units' values (n, D) of the next rows, in the order of the points."""

    def prepare(self, points: Points, labels: Ints, factors: Floats) -> None:  # noqa: B027
        """Examine the network without draws at some points; ``labels`` (N,) are the groups of all points.

        The units are multiplied by ``factors`` (D,) in the result.
        """

    def begin_draw(self, seed: int) -> None:  # noqa: B027
        """Start a draw; ``seed`` is for random numbers of the engine."""

    def adapt(self, rows: Rows) -> None:  # noqa: B027
        """Examine the network of a draw on a few rows."""

    def end_draw(self, sums: GroupSums) -> None:  # noqa: B027
        """Finish a draw, after all of its rows were added to ``sums``."""

    def fall_back(self) -> None:  # noqa: B027
        """Use another engine from now on, as this one was ``refuted``, here or in another process."""

    @abstractmethod
    def chunk_rows(self, rows: Rows) -> int:
        """Return the number of rows per call of :meth:`add`; ``rows`` are a few, to measure the memory of one."""

    def calls_and_rows(self, n_rows: int) -> tuple[int, int] | None:
        """Return the calls of the model for a chunk of ``n_rows`` rows, and the rows of these calls.

        None for engines that do more than to call the model.
        """
        return None

    @abstractmethod
    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``.

        Parameters
        ----------
        sums
            Sums of the current draws, changed in place.
        rows
            A chunk of n rows. Where B draws are computed at once, B * n rows: n of the first draw, then n of the
            second, and so on.
        labels
            Groups (n,) of the rows.
        """


def check_finite(sums: Tensor | None, rows: Rows) -> None:
    """Raise if ``sums`` are NaN or infinite after ``rows`` were added; None passes.

    Sums are checked, and not each Hessian, as they are smaller and a NaN stays in them.
    """
    if sums is not None and not bool(torch.isfinite(sums).all()):
        raise GEHRuntimeError(
            f"some second derivatives are NaN or infinite in rows {rows.start} to {rows.start + len(rows) - 1}; a "
            "function in the model has none there (square roots and norms at 0, for instance). Move such rows, or "
            "add a small constant inside the function."
        )
