"""Many processes, on one machine or several, that work on one run: the ranks of torch.distributed.

Every rank makes the same call. A *round* gives each of them a draw; where draws are fewer than ranks, several share
one, each with a part of the points. At the end of a round all ranks get the sums of all draws, so that all have the
same result.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError

#: How long ranks wait for one another at the start of a call.
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class RankGroup:
    """The ranks, and which of them this process is; a single one talks to nobody."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that shows progress, warns and keeps the checkpoint."""
        return self.rank == 0

    def teams(self, draws: int) -> int:
        """Return how many draws a round has: as many as ranks, or the most that share them evenly."""
        return next(teams for teams in range(min(self.size, max(draws, 1)), 0, -1) if self.size % teams == 0)

    def share(self, teams: int, points: int) -> tuple[int, slice]:
        """Return which of a round's draws is this rank's, and which of the points."""
        members = self.size // teams
        team, member = divmod(self.rank, members)
        return team, slice(points * member // members, points * (member + 1) // members)

    def all_min(self, value: int) -> int:
        """Return the least of a number over all ranks."""
        if self.size == 1:
            return value
        least = torch.tensor([value], device=_device())
        with _together():
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return int(least)

    def broadcast(self, value: int) -> int:
        """Return the first rank's number."""
        if self.size == 1:
            return value
        number = torch.tensor([value], device=_device())
        with _together():
            dist.broadcast(number, 0)
        return int(number)

    def on_rank0(self, action: Callable[[], None]) -> None:
        """Do something on the first rank; where it refuses, all ranks do."""
        try:
            if self.first:
                action()
        except GEHError:
            self.broadcast(0)
            raise
        if not self.broadcast(1):
            raise GEHRuntimeError("rank 0 has refused the call; its error says why.")

    def collect(self, own: GroupSums | None, source: int, members: int) -> GroupSums:
        """Return the sums of one draw, added up over the ``members`` ranks from ``source`` on that share it."""
        if self.size == 1:
            assert own is not None
            return own
        mine = own if source <= self.rank < source + members else None
        shape, content = torch.zeros(6, dtype=torch.long), torch.zeros(0, dtype=torch.double)
        if mine is not None:
            units = 0 if mine.slopes is None else mine.slopes.shape[2]
            shape = torch.tensor([*mine.signed.shape, mine.variance is not None, mine.slopes is not None, units])
            parts = [part for part in (mine.signed, mine.absolute, mine.variance, mine.slopes) if part is not None]
            content = torch.cat([*(part.reshape(-1) for part in parts), torch.tensor([float(mine.skipped)]).double()])
        shape = shape.to(_device())
        with _together():
            dist.broadcast(shape, source)
            draws, groups, pairs, variance, slopes, units = shape.tolist()
            signed, main = (draws, groups, pairs), (draws, groups, units)
            shapes = [signed, (draws, pairs), *[signed] * variance, *[main] * slopes, (1,)]
            sizes = [math.prod(each) for each in shapes]
            content = (content if mine is not None else torch.zeros(sum(sizes), dtype=torch.double)).to(_device())
            if members == 1:
                dist.broadcast(content, source)
            else:
                dist.all_reduce(content)
        parts = [part.reshape(each) for part, each in zip(torch.split(content.cpu(), sizes), shapes, strict=True)]
        skipped = int(parts.pop())
        found = parts.pop() if slopes else None
        return GroupSums(parts[0], parts[1], parts[2] if variance else None, found, skipped)

    def check_same(self, about: dict[str, Any]) -> None:
        """Refuse ranks that were called with different things."""
        if self.size == 1:
            return
        numbers = [int(_short(value), 16) for value in about.values()]
        mine = torch.tensor(numbers, device=_device())
        all_of_them = [torch.zeros_like(mine) for _ in range(self.size)]
        with _together():
            dist.all_gather(all_of_them, mine)
        for rank, theirs in enumerate(all_of_them):
            differ = [name for name, a, b in zip(about, theirs.tolist(), numbers, strict=True) if a != b]
            if differ:
                raise GEHValueError(
                    f"rank {rank} was called with another {', '.join(differ)} than rank {self.rank}; under torchrun "
                    "all ranks make the same call and share the work. For a call of this rank alone pass "
                    "distributed=False."
                )


def find_rank_group(distributed: bool | None) -> RankGroup:
    """Return the ranks that share a call: those of torch.distributed, which torchrun starts, or this process alone."""
    if distributed is not None and not isinstance(distributed, bool):
        raise GEHTypeError(f"distributed={distributed!r} must be None, True or False.")
    if distributed is False or not dist.is_available():
        return RankGroup()
    if not dist.is_initialized() and dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(dist.destroy_process_group)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        if distributed:
            raise GEHRuntimeError("distributed=True, but there is one process; start several with torchrun.")
        return RankGroup()
    ranks = RankGroup(dist.get_rank(), dist.get_world_size())
    if _on_cpu():
        try:
            dist.monitored_barrier(timeout=_PATIENCE)
        except RuntimeError as error:
            raise GEHRuntimeError(
                f"explain() waited {_PATIENCE} for the other ranks ({error}); call it on all of them, or pass "
                "distributed=False to explain on this one alone."
            ) from error
    return ranks


def _short(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:15]


def _on_cpu() -> bool:
    return "gloo" in dist.get_backend_config()


def _device() -> torch.device:
    """Return where tensors must be to be sent."""
    return torch.device("cpu") if _on_cpu() else torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _together() -> Iterator[None]:
    """Say in words what a lost rank does to the others."""
    try:
        yield
    except RuntimeError as error:
        raise GEHRuntimeError(
            f"another rank has died or cannot be reached ({str(error).splitlines()[0]}); draws that were finished are "
            "in the checkpoint, if there is one, and the same call goes on from there."
        ) from error
