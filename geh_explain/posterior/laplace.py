"""Draws of a Laplace approximation, as laplace-torch fits it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.linear_expansion import linearised
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.posterior.weights import loaded


class Laplace:
    """Draws of a fitted ``laplace.Laplace``, of the linearised network or of the weights as they are.

    A Gaussian over weights may reach far beyond where the network still fits the data; its linear expansion, for
    which the approximation is meant, stays there.
    """

    def __init__(self, la: Any, linearised: bool = True) -> None:
        if not hasattr(la, "sample") or not hasattr(la, "mean"):
            raise GEHTypeError(
                f"la={type(la).__name__} is no fitted Laplace approximation; pass laplace.Laplace(model, ...) after "
                "its fit()."
            )
        self.la, self.linearised = la, linearised
        # For the last layer alone the library works on a copy of the model, inside another module.
        last = getattr(la.model, "last_layer", None)
        names = {
            parameter: name for name, parameter in (la.model if last is None else la.model.model).named_parameters()
        }
        #: The weights that are drawn, by name.
        self.weights: dict[str, Tensor] = {
            names[each]: each for each in (la.params if last is None else last.parameters())
        }
        count = sum(weight.numel() for weight in self.weights.values())
        if len(la.mean) != count:
            raise GEHTypeError(
                f"la has {len(la.mean)} weights, and the layers it belongs to {count}; subnetworks are not supported: "
                "use subset_of_weights='all' or 'last_layer'."
            )

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws."""
        own = dict(model.named_parameters())
        if not all(name in own and torch.equal(own[name].to(weight), weight) for name, weight in self.weights.items()):
            raise GEHValueError("from_laplace: la was fitted to another model, or before it was trained further.")
        for draw in range(n):
            generator = torch.Generator(device=self.la.mean.device).manual_seed(seed_of_draw(seed, draw))
            drawn = self.la.sample(1, generator=generator)[0].detach()
            if self.linearised:
                yield linearised(model, self._parts(drawn - self.la.mean.detach()))
            else:
                yield loaded(model, self._parts(drawn), draw)

    def _parts(self, vector: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(vector, [weight.numel() for weight in self.weights.values()])
        return {
            name: piece.reshape(like.shape) for piece, (name, like) in zip(pieces, self.weights.items(), strict=True)
        }

    def __repr__(self) -> str:
        return f"Laplace({type(self.la).__name__}, linearised={self.linearised})"
