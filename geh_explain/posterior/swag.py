"""SWAG: a Gaussian fitted to the weights that SGD visits (Maddox et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from geh_explain._validation import check_int, check_positive
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.by_draw import batch_samples, draws_at_once
from geh_explain.posterior.loading import StateDict, load_weights
from geh_explain.posterior.protocols import seed_of_draw


class SWAG:
    """A Gaussian over the weights, fitted to checkpoints that SGD left at a constant learning rate.

    With checkpoints w_1 ... w_T of mean m and elementwise standard deviation s (denominator T), and the matrix D of
    the last K = min(rank, T) deviations w_t - m, a draw is ::

        w = m + sqrt(scale / 2) * (s * z + D y / sqrt(K - 1)),   z ~ N(0, I), y ~ N(0, I_K),

    so that one half of the covariance is diagonal and one half of low rank.

    Draws sample the parameters. Buffers such as batch statistics stay as they are in the model, also where checkpoints
    hold them: a Gaussian may give them impossible values. ``torch.optim.swa_utils.update_bn`` updates them.

    Parameters
    ----------
    checkpoints
        State dicts with the same entries and shapes, at least two, in the order of training. They are copied.
    rank
        Number K of last checkpoints that the low-rank half uses.
    scale
        Factor of the covariance. 1 is the posterior of the paper; smaller values are colder.
    seed
        Added to the seed of a run.

    Raises
    ------
    GEHTypeError, GEHValueError
        If there are fewer than two checkpoints, if they differ in entries or shapes, or if ``rank``, ``scale`` or
        ``seed`` is out of range.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Linear(3, 1)
    >>> path = [{k: v + 0.1 * torch.randn_like(v) for k, v in net.state_dict().items()} for _ in range(10)]
    >>> posterior = geh.posterior.SWAG(path, rank=5)
    >>> posterior
    SWAG(10, rank=5, scale=1.0, seed=0)
    >>> posterior.sample(0)["weight"].shape
    torch.Size([1, 3])
    """

    keeps_below = True

    def __init__(self, checkpoints: Sequence[StateDict], rank: int = 20, scale: float = 1.0, seed: int = 0) -> None:
        states = _check_checkpoints(checkpoints)
        self.rank = check_int("rank", rank, 1)
        self.seed = check_int("seed", seed, 0)
        self.scale = check_positive("SWAG: scale", scale, "a positive number; 1 is the covariance of the checkpoints")
        self.n_checkpoints = len(states)
        # Double precision: the standard deviations along the path are small beside the weights.
        stacked = {
            name: torch.stack([state[name].detach().cpu().double() for state in states])
            for name, value in states[0].items()
            if value.is_floating_point()
        }
        self._mean = {name: values.mean(dim=0) for name, values in stacked.items()}
        self._std = {name: values.std(dim=0, correction=0) for name, values in stacked.items()}
        self._deviations = {name: values[-self.rank :] - self._mean[name] for name, values in stacked.items()}

    def sample(self, draw: int, seed: int = 0) -> dict[str, torch.Tensor]:
        """Return all floating-point entries of draw number ``draw`` in a run with a seed, in double precision."""
        n_deviations = min(self.rank, self.n_checkpoints)
        generator = torch.Generator().manual_seed(seed_of_draw(self.seed + seed, draw))
        # One vector y for all entries: it is what correlates the weights.
        y = torch.randn(n_deviations, generator=generator, dtype=torch.double) / max(1, n_deviations - 1) ** 0.5
        weights = {}
        for name, mean in self._mean.items():
            z = torch.randn(mean.shape, generator=generator, dtype=torch.double)
            step = self._std[name] * z + torch.tensordot(y, self._deviations[name], dims=1)
            weights[name] = mean + (self.scale / 2) ** 0.5 * step
        return weights

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws, the parameters of ``sample(0, seed)`` to ``sample(n - 1, seed)``."""
        for draw in range(n):
            yield load_weights(model, self._parameters(model, draw, seed), draw, "SWAG")

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several draws at once, see :class:`~geh_explain.posterior.protocols.BatchedPosterior`."""
        return batch_samples(model, [self._parameters(model, draw, seed) for draw in draws], draws.start, "SWAG")

    def draws_at_once(self, model: nn.Module, fitting: int) -> int:
        """Return how many draws are computed at once: several if the checkpoints hold linear layers only."""
        buffers = dict(model.named_buffers(remove_duplicate=False))
        return draws_at_once(model, self._mean.keys() - buffers.keys(), fitting)

    def _parameters(self, model: nn.Module, draw: int, seed: int) -> dict[str, torch.Tensor]:
        """Return a sample without the buffers of the model."""
        buffers = dict(model.named_buffers(remove_duplicate=False))
        return {name: value for name, value in self.sample(draw, seed).items() if name not in buffers}

    def __repr__(self) -> str:
        return f"SWAG({self.n_checkpoints}, rank={self.rank}, scale={self.scale}, seed={self.seed})"


def _check_checkpoints(checkpoints: Any) -> list[StateDict]:
    """Return the checkpoints as a list of state dicts that agree in the shapes of their floating-point entries."""
    states = [] if isinstance(checkpoints, Mapping) or not isinstance(checkpoints, Iterable) else list(checkpoints)
    if not states or not all(isinstance(state, Mapping) for state in states):
        raise GEHTypeError("SWAG: checkpoints must be a list of state dicts; pass at least two checkpoints.")
    if len(states) < 2:
        raise GEHValueError(f"SWAG: checkpoints has {len(states)} state dicts; pass at least two checkpoints.")
    shapes = {name: value.shape for name, value in states[0].items() if value.is_floating_point()}
    for number, state in enumerate(states):
        if not all(name in state and state[name].shape == shape for name, shape in shapes.items()):
            raise GEHValueError(
                f"SWAG: checkpoint {number} has other entries or shapes than the first; pass checkpoints of one model."
            )
    return states
