"""One run: every draw of the posterior, over all points, summed by group."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import current_thread, main_thread
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from geh_explain import groups
from geh_explain.checkpoint import Checkpoint
from geh_explain.cut import Cut
from geh_explain.draws import DrawMoments, Draws
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups import GroupChoice, Grouping, RegionTree
from geh_explain.hessian import Engine, GroupSums
from geh_explain.memory import give_back, keep_freed
from geh_explain.points import Points
from geh_explain.posterior import PointEstimate, Posterior
from geh_explain.posterior.base import TakesSeveral, seed_of_draw
from geh_explain.ranks import Ranks

Floats = NDArray[np.float64]

#: How many draws settle the number of groups: the mean score needs far fewer than its spread.
PILOT_DRAWS = 20
#: After so many seconds freed memory is given back.
_TIDY = 1.0
#: Pairs that are looked at together where there are very many.
_PAIRS = 65536


@dataclass
class Collected:
    """The sums of the draws so far, and the groups they are over.

    With a ``tree`` the number of groups is open: sums are over its finest regions until ``pilot`` draws are
    there, which settle it. ``factors`` (D,) are what units are multiplied by. Where ``expected`` draws would take more
    than ``limit`` bytes, only their ``moments`` are kept.
    """

    grouping: Grouping
    tree: RegionTree | None = None
    factors: Floats | None = None
    pilot: int = PILOT_DRAWS
    expected: int = 1
    limit: float = float("inf")
    choice: GroupChoice | None = None
    sampled: bool = False
    interrupted: bool = False
    tidied: float = field(default_factory=monotonic)
    moments: DrawMoments | None = None
    _signed: list[Floats] = field(default_factory=list)
    _absolute: list[Floats] = field(default_factory=list)
    _variance: list[Floats] = field(default_factory=list)
    _slopes: list[Floats] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many draws are there."""
        return len(self._signed) + (0 if self.moments is None else self.moments.geh.count)

    def next_stop(self) -> int:
        """Return up to which draw the groups stay what they are: pilot draws settle them."""
        return self.expected if self.tree is None else min(self.expected, self.pilot)

    def take(self, sums: GroupSums) -> None:
        """Take the sums of one more draw, or of several."""
        counted = len(self.grouping.labels) - sums.skipped
        self.sampled |= sums.skipped > 0
        for draw in range(len(sums.signed)):
            self._signed.append(sums.signed[draw].numpy())
            self._absolute.append(sums.absolute[draw].numpy() / counted)
            if sums.variance is not None:
                self._variance.append(sums.variance[draw].numpy())
            if sums.slopes is not None:
                self._slopes.append(sums.slopes[draw].numpy())
            if self.count == self.pilot:
                self.settle()
        if self.tree is None:
            self._fold()

    def settle(self) -> None:
        """Choose the number of groups from the draws so far, if it is still open, and merge to it."""
        tree, self.tree = self.tree, None
        if tree is None:
            return
        # Draw by draw, and in place: for thousands of units each array is a large one.
        scores = groups.curve(tree, self._signed[0], len(self.grouping.labels))
        for signed in self._signed[1:]:
            scores += groups.curve(tree, signed, len(self.grouping.labels))
        scores *= np.abs(self._pair_factors()) / len(self._signed)
        self.choice = groups.choose(scores)
        if self.limit < 8 * scores.nbytes:
            self.choice = replace(self.choice, scores=scores[:, :0])  # they are for the curve only
        del scores
        self._signed = [tree.merge(signed, self.choice.chosen) for signed in self._signed]
        self._variance = [tree.merge(variance, self.choice.chosen) for variance in self._variance]
        self._slopes = [tree.merge(slopes, self.choice.chosen) for slopes in self._slopes]
        self.grouping = groups.from_tree(tree, self.grouping.labels, self.choice.chosen)
        give_back()

    def _fold(self) -> None:
        """Keep the moments of the draws only, if all of them would not fit."""
        if self.moments is None and self.expected * self._signed[0].nbytes > self.limit:
            self.moments = DrawMoments()
        while self.moments is not None and self._signed:
            self.moments.add(self._take_means(1), self.grouping.sizes)

    def _pair_factors(self) -> Floats | float:
        if self.factors is None or (self.factors == 1).all():
            return 1.0
        return np.asarray(np.outer(self.factors, self.factors)[np.triu_indices(len(self.factors), 1)])

    def result(self) -> Draws | DrawMoments:
        """Hand over the means of all draws, or their moments; each unit is multiplied by its factor."""
        return self._take_means(len(self._signed)) if self.moments is None else self.moments

    def spread(self) -> tuple[float, float]:
        """Return the largest absolute interaction, and the largest difference of it between draws."""
        if self.moments is not None:
            return float(self.moments.eah.mean.max()), float(self.moments.eah.squares.max())
        first, *others = self._absolute
        largest = max(float(absolute.max()) for absolute in self._absolute)
        return largest, max((float(np.abs(absolute - first).max()) for absolute in others), default=0.0)

    def _take_means(self, count: int) -> Draws:
        pair_factors = self._pair_factors()
        sizes = np.maximum(self.grouping.sizes, 1)[:, None]
        # All in place: for thousands of units each array is a large one.
        signed, absolute = _taken(self._signed, count), _taken(self._absolute, count)
        signed /= sizes
        if not isinstance(pair_factors, float):
            signed *= pair_factors
            absolute *= np.abs(pair_factors)
        slopes = _taken(self._slopes, count) / sizes if self._slopes else None
        if slopes is not None and self.factors is not None:
            slopes = slopes * self.factors
        noise = _taken(self._variance, count) if self._variance else None
        if noise is not None:
            noise = np.sqrt(noise) / sizes * np.abs(pair_factors)
        if self.sampled:
            # An estimate from some of the points, which the group means bound from below.
            shares = self.grouping.sizes / len(self.grouping.labels)
            for start in range(0, absolute.shape[1], _PAIRS):
                some = absolute[:, start : start + _PAIRS]
                bound = np.einsum("kmp,m->kp", np.abs(signed[:, :, start : start + _PAIRS]), shares)
                np.maximum(some, bound, out=some)
        return Draws(signed, absolute, noise, slopes)


def _taken(arrays: list[Floats], count: int) -> Floats:
    """Take the first ``count`` arrays out of a list, as one array."""
    taken = arrays[:count]
    del arrays[:count]
    return taken[0][None] if count == 1 else np.stack(taken)


@dataclass(frozen=True)
class Job:
    """What one call of the explainer works on, with whom it shares the work, and where draws are kept."""

    points: Points
    cut: Cut
    posterior: Posterior
    engine: Engine
    reason: str
    collected: Collected
    smoothed: dict[str, Any] | None
    budget: int
    ranks: Ranks
    checkpoint: Checkpoint | None = None

    def take(self, start: int, sums: GroupSums) -> None:
        """Keep and take the sums of the draws from number ``start`` on, all of it or nothing."""
        with unbroken():
            if self.checkpoint is not None and self.ranks.first:
                self.checkpoint.keep(start, sums)
            self.collected.take(sums)

    def take_kept(self, start: int) -> bool:
        """Take the sums of the draws from number ``start`` on from the checkpoint, if they are there."""
        if self.checkpoint is None:
            return False
        sums = None
        if self.ranks.first:
            sums = self.checkpoint.find(start, self.cut.count, self.collected.expected - start)
        if not self.ranks.of_first(sums is not None):
            return False
        sums = self.ranks.collect(sums, 0, 1)
        with unbroken():
            self.collected.take(sums)
        return True


def run(job: Job, draws: int, seed: int, progress: bool, adapt: Callable[[], None] | None = None) -> None:
    """Compute up to ``draws`` draws and collect their sums.

    ``adapt`` is called inside each draw, for what depends on the network that answers in it. What is finished when
    the user interrupts is a result too.
    """
    keep_freed()
    known = job.posterior.__len__() if hasattr(job.posterior, "__len__") else draws
    job.collected.expected = min(draws, known)
    rows = job.collected.expected * len(job.points)
    shown = progress and job.ranks.first
    with tqdm(total=rows, desc="explaining", unit="row", unit_scale=True, disable=not shown, leave=False) as bar:
        try:
            _run(job, draws, seed, bar, adapt)
        except KeyboardInterrupt:
            if not job.collected.count or job.ranks.size > 1:
                raise
            job.collected.interrupted = True
    if not job.collected.count:
        raise GEHValueError(f"posterior={job.posterior!r} gave no draws for n={draws}; it must yield at least one.")
    job.collected.settle()


@dataclass
class _Round:
    """A draw for each team of ranks, from number ``start`` on; ``own`` is what this rank computed of it."""

    start: int
    teams: int
    own: GroupSums | None = None
    seen: int = 0


def _run(job: Job, draws: int, seed: int, bar: Any, adapt: Callable[[], None] | None) -> None:
    several = isinstance(job.posterior, TakesSeveral) and adapt is None
    current: _Round | None = None
    for number, draw in enumerate(islice(job.posterior.draws(job.cut.model, draws, seed) or (), draws)):
        if not isinstance(draw, AbstractContextManager):
            raise GEHTypeError(
                f"posterior={job.posterior!r}: draw {number} is a {type(draw).__name__}; draws must yield context "
                "managers (see contextlib.contextmanager), inside which the model is one function."
            )
        # Draws that are known, or another rank's, are entered too: a posterior may draw one after the other.
        with draw:
            job.engine.start(seed_of_draw(seed, number))
            # The first forward of a draw has one row, see Posterior.
            job.cut.outputs(job.points.first[:1])
            if number == 0:
                job.cut.check_rows(job.points.first)
                if adapt is None and not isinstance(job.posterior, PointEstimate):
                    job.engine.adapt(job.cut, job.points.first)
            if number < job.collected.count or (current is None and job.take_kept(number)):
                _advance(job, bar)
            else:
                if current is None:
                    left = job.collected.next_stop() - number
                    current = _Round(number, 1 if several else job.ranks.teams(left))
                current.seen += 1
                team, part = job.ranks.share(current.teams, len(job.points))
                if team == number - current.start:
                    if adapt is not None:
                        adapt()
                        job.engine.adapt(job.cut, job.points.first)
                    current.own = _sums(job, bar, part)
        if current is not None and current.seen == current.teams:
            _end(job, current, bar)
            current = None
        if several and job.collected.count and (at_once := job.ranks.agree(_draws_at_once(job))) > 1:
            _run_together(job, seed, at_once, bar)
            return
        several = False
    if current is not None:  # the posterior had fewer draws than it said
        _end(job, current, bar)


def _end(job: Job, current: _Round, bar: Any) -> None:
    """Give all ranks the draws of a round."""
    members = job.ranks.size // current.teams
    for team in range(current.seen):
        job.take(current.start + team, job.ranks.collect(current.own, team * members, members))
    _advance(job, bar)


def _advance(job: Job, bar: Any) -> None:
    bar.n = max(bar.n, job.collected.count * len(job.points))
    bar.set_postfix_str(f"draw {job.collected.count}", refresh=False)


def _draws_at_once(job: Job) -> int:
    """Return how many draws of all points fit into one chunk: a few points alone do not keep the machine busy."""
    samples = job.engine.absolute_points is not None and job.engine.absolute_points < len(job.points)
    if not isinstance(job.posterior, TakesSeveral) or not job.engine.takes_several_draws or samples:
        return 1
    return job.engine.chunk_rows(job.cut, job.points.first) // len(job.points)


def _run_together(job: Job, seed: int, at_once: int, bar: Any) -> None:
    """Compute the draws after the first one, several of them at a time."""
    assert isinstance(job.posterior, TakesSeveral)
    while (done := job.collected.count) < job.collected.expected:
        if job.take_kept(done):
            _advance(job, bar)
            continue
        stop = job.collected.next_stop()
        current = _Round(done, job.ranks.teams(stop - done))
        block = min(at_once, -(-(stop - done) // current.teams))
        starts = range(done, min(stop, done + current.teams * block), block)
        team, part = job.ranks.share(current.teams, len(job.points))
        if team < len(starts):
            some = range(starts[team], min(stop, starts[team] + block))
            with job.posterior.together(job.cut.model, some, seed):
                job.engine.start(seed_of_draw(seed, some.start))
                job.cut.outputs(job.points.first[:1])
                current.own = _sums(job, bar, part, len(some))
        members = job.ranks.size // current.teams
        for number, start in enumerate(starts):
            job.take(start, job.ranks.collect(current.own, number * members, members))
        _advance(job, bar)


def _sums(job: Job, bar: Any, part: slice, draws: int = 1) -> GroupSums:
    """Return the sums over a part of the points, of one draw or of several at once."""
    labels = job.collected.grouping.labels
    sums = GroupSums.zeros(len(job.collected.grouping.names), job.cut.count, draws)
    for rows in job.points.batches():
        own = rows[max(0, part.start - rows.start) : max(0, part.stop - rows.start)]
        for chunk in own.split(max(1, job.engine.chunk_rows(job.cut, rows) // draws)):
            groups_of = labels[chunk.start : chunk.start + len(chunk)]
            job.engine.add(sums, job.cut, chunk.repeat(draws) if draws > 1 else chunk, groups_of)
            bar.update(len(chunk) * draws)
    job.engine.finish(sums, job.cut)
    if monotonic() > job.collected.tidied + _TIDY:
        give_back()
        job.collected.tidied = monotonic()
    return sums


@contextmanager
def unbroken() -> Iterator[None]:
    """Let Ctrl-C wait until a step is whole."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        raise KeyboardInterrupt
