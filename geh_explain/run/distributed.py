"""Several processes that share one run: the ranks of torch.distributed, started by torchrun.

Every rank makes the same call. A *round* gives each rank a draw. Where fewer draws than ranks are left, ranks form
teams: the members of a team share a draw, and each takes a part of the points. At the end of a round all ranks receive
the sums of all draws, so that all of them return the same result.
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

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from geh_explain.engines.sums import ARRAYS, GroupSums
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError

#: How long ranks wait for one another at the start of a call.
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a run, and which of them this process is.

    With ``size=1`` no collective operation is called, so that the same code serves single processes.

    >>> RankGroup(rank=5, size=6).share(teams=3, n_points=100)  # three draws, each shared by two ranks
    (2, slice(50, 100, None))
    """

    rank: int = 0
    size: int = 1
    #: With shards, the index of the first row of each rank and the number of all rows (R + 1,); else empty.
    bounds: tuple[int, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this is the rank that shows progress, warns and writes the checkpoint."""
        return self.rank == 0

    def teams(self, draws: int) -> int:
        """Return the number of teams of a round, one draw each.

        It is the largest divisor of the number of ranks that does not exceed the ``draws`` that are left. With shards
        all ranks share each draw.
        """
        if self.bounds:
            return 1
        return next(teams for teams in range(min(self.size, max(draws, 1)), 0, -1) if self.size % teams == 0)

    def share(self, teams: int, n_points: int) -> tuple[int, slice]:
        """Return the team of this rank, and the points of its part of the draw."""
        if self.bounds:
            return 0, slice(self.bounds[self.rank], self.bounds[self.rank + 1])
        members = self.size // teams
        team, member = divmod(self.rank, members)
        return team, slice(n_points * member // members, n_points * (member + 1) // members)

    def all_min(self, value: int) -> int:
        """Return the minimum of ``value`` over all ranks."""
        if self.size == 1:
            return value
        least = torch.tensor([value], device=_device())
        with _collective():
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return int(least)

    def broadcast(self, value: int) -> int:
        """Return the ``value`` of rank 0."""
        if self.size == 1:
            return value
        number = torch.tensor([value], device=_device())
        with _collective():
            dist.broadcast(number, 0)
        return int(number)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            with _collective():
                dist.all_gather_object(found, value)
        return found

    def concatenate(self, own: NDArray[Any], bounds: tuple[int, ...]) -> NDArray[Any]:
        """Return an array with the entries ``own`` of each rank, which begin at the index ``bounds`` (R + 1,)."""
        joined = np.empty(bounds[-1], dtype=own.dtype)
        for source in range(self.size):
            part = joined[bounds[source] : bounds[source + 1]]
            if source == self.rank:
                part[:] = own
            if self.size > 1:
                sent = torch.from_numpy(part).to(_device())
                with _collective():
                    dist.broadcast(sent, source)
                part[:] = sent.cpu().numpy()
        return joined

    def on_rank0(self, action: Callable[[], None]) -> None:
        """Run ``action`` on rank 0; where it raises a GEHError there, all ranks raise."""
        try:
            if self.first:
                action()
        except GEHError:
            self.broadcast(0)
            raise
        if not self.broadcast(1):
            raise GEHRuntimeError("rank 0 has refused the call; its error says why.")

    def collect(self, own: GroupSums | None, source: int, members: int) -> GroupSums:
        """Return the sums of one draw on all ranks, added up over the ranks that share it.

        Parameters
        ----------
        own
            What this rank computed in the round, None if nothing.
        source, members
            The draw is shared by the ranks ``source`` to ``source + members - 1``.
        """
        if self.size == 1:
            assert own is not None
            return own
        mine = own if source <= self.rank < source + members else None
        # Only the members know the shapes: they are broadcast before the content, which is one flat tensor.
        shape, content = torch.zeros(len(ARRAYS), 3, dtype=torch.long), torch.zeros(0, dtype=torch.double)
        if mine is not None:
            present = {name: part for name in ARRAYS if (part := getattr(mine, name)) is not None}
            for row, name in zip(shape, ARRAYS, strict=True):
                size = present[name].shape if name in present else ()
                row[: len(size)] = torch.tensor(size)
            skipped = torch.tensor([float(mine.skipped)]).double()
            content = torch.cat([*(part.reshape(-1) for part in present.values()), skipped])
        shape = shape.to(_device())
        with _collective():
            dist.broadcast(shape, source)
            # A dimension of 0 is one that an array does not have, and the array itself is missing if all are 0.
            shapes = {name: [n for n in row if n] for name, row in zip(ARRAYS, shape.tolist(), strict=True) if any(row)}
            sizes = [*(math.prod(size) for size in shapes.values()), 1]
            content = (content if mine is not None else torch.zeros(sum(sizes), dtype=torch.double)).to(_device())
            if members == 1:
                dist.broadcast(content, source)
            else:
                dist.all_reduce(content)
        *parts, skipped = torch.split(content.cpu(), sizes)
        arrays = {name: part.reshape(size) for (name, size), part in zip(shapes.items(), parts, strict=True)}
        return GroupSums(**arrays, skipped=int(skipped))

    def check_same(self, identity: dict[str, Any]) -> None:
        """Raise on all ranks if they were called with different arguments, data or models."""
        if self.size == 1:
            return
        # Hashes of 60 bits fit into the integers of a tensor.
        numbers = [int(_hash(value), 16) for value in identity.values()]
        mine = torch.tensor(numbers, device=_device())
        gathered = [torch.zeros_like(mine) for _ in range(self.size)]
        with _collective():
            dist.all_gather(gathered, mine)
        for rank, hashes in enumerate(gathered):
            differ = [name for name, a, b in zip(identity, hashes.tolist(), numbers, strict=True) if a != b]
            if differ:
                raise GEHValueError(
                    f"rank {rank} was called with another {', '.join(differ)} than rank {self.rank}; under torchrun "
                    "all ranks make the same call and share the work. For a call of this rank alone pass "
                    "distributed=False."
                )


def find_rank_group(distributed: bool | str | None) -> RankGroup:
    """Return the ranks that share a call.

    These are the ranks of torch.distributed, which is initialised if torchrun started this process, or this process
    alone. ``distributed=False`` asks for the latter, True refuses it, None and ``"shards"`` take what there is.
    """
    if distributed not in (None, "shards") and not isinstance(distributed, bool):
        raise GEHTypeError(f"distributed={distributed!r} must be None, True, False or 'shards'.")
    if distributed is False or not dist.is_available():
        return RankGroup()
    if not dist.is_initialized() and dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(dist.destroy_process_group)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        if distributed is True:
            raise GEHRuntimeError("distributed=True, but there is one process; start several with torchrun.")
        return RankGroup()
    ranks = RankGroup(dist.get_rank(), dist.get_world_size())
    if _on_cpu():
        try:
            dist.monitored_barrier(timeout=_TIMEOUT)
        except RuntimeError as error:
            raise GEHRuntimeError(
                f"explain() waited {_TIMEOUT} for the other ranks ({error}); call it on all of them, or pass "
                "distributed=False to explain on this one alone."
            ) from error
    return ranks


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:15]


def _on_cpu() -> bool:
    return "gloo" in dist.get_backend_config()


def _device() -> torch.device:
    """Return the device on which tensors can be communicated."""
    return torch.device("cpu") if _on_cpu() else torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _collective() -> Iterator[None]:
    """Turn the error of a collective operation into one that says what happened and what to do."""
    try:
        yield
    except RuntimeError as error:
        raise GEHRuntimeError(
            f"another rank has died or cannot be reached ({str(error).splitlines()[0]}); draws that were finished are "
            "in the checkpoint, if there is one, and the same call resumes from there."
        ) from error
