"""SWAG: a Gaussian around the path that SGD takes once it has arrived (Maddox et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from geh_explain.errors import GEHValueError
from geh_explain.posterior.protocols import seed_of_draw

State = Mapping[str, Tensor]


def swag_sampler(checkpoints: Sequence[State], rank: int, scale: float, seed: int = 0) -> Callable[[int], State]:
    """Return what draws the k-th sample."""
    checkpoints = list(checkpoints)
    if len(checkpoints) < 2 or rank < 1 or not scale > 0:
        raise GEHValueError(
            f"from_swag: {len(checkpoints)} checkpoints, rank={rank}, scale={scale}; give at least two checkpoints, "
            "and a positive rank and scale."
        )
    names = [name for name, value in checkpoints[0].items() if value.is_floating_point()]
    for number, checkpoint in enumerate(checkpoints):
        if not all(name in checkpoint and checkpoint[name].shape == checkpoints[0][name].shape for name in names):
            raise GEHValueError(f"from_swag: checkpoint {number} has other entries or shapes than the first.")
    stacked = {
        name: torch.stack([checkpoint[name].detach().cpu().double() for checkpoint in checkpoints]) for name in names
    }
    mean = {name: values.mean(dim=0) for name, values in stacked.items()}
    spread = {name: values.std(dim=0, correction=0) for name, values in stacked.items()}
    low_rank = {name: values[-rank:] - mean[name] for name, values in stacked.items()}
    count = min(rank, len(checkpoints))

    def sample(draw: int) -> State:
        generator = torch.Generator().manual_seed(seed_of_draw(seed, draw))
        weights = torch.randn(count, generator=generator, dtype=torch.double) / max(1, count - 1) ** 0.5
        found = {}
        for name in names:
            noise = torch.randn(mean[name].shape, generator=generator, dtype=torch.double)
            step = spread[name] * noise + torch.tensordot(weights, low_rank[name], dims=1)
            found[name] = mean[name] + (scale / 2) ** 0.5 * step
        return found

    return sample
