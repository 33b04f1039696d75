"""One run: every draw of the posterior, over all points, summed by group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from tqdm.auto import tqdm

from geh_explain._memory import reuse_heap, trim_heap
from geh_explain.engines import GroupSums
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior import PointEstimate
from geh_explain.posterior.protocols import BatchedPosterior, seed_of_draw
from geh_explain.run.plan import Job

#: After so many seconds freed memory is given back.
_TIDY = 1.0


def run(job: Job, draws: int, seed: int, progress: bool, adapt: Callable[[], None] | None = None) -> None:
    """Compute up to ``draws`` draws and collect their sums.

    ``adapt`` is called inside each draw, for what depends on the network that answers in it. What is finished when
    the user interrupts is a result too.
    """
    reuse_heap()
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
    several = isinstance(job.posterior, BatchedPosterior) and adapt is None
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
    if not isinstance(job.posterior, BatchedPosterior) or not job.engine.takes_several_draws or samples:
        return 1
    return job.engine.chunk_rows(job.cut, job.points.first) // len(job.points)


def _run_together(job: Job, seed: int, at_once: int, bar: Any) -> None:
    """Compute the draws after the first one, several of them at a time."""
    assert isinstance(job.posterior, BatchedPosterior)
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
            with job.posterior.batched(job.cut.model, some, seed):
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
        trim_heap()
        job.collected.tidied = monotonic()
    return sums
