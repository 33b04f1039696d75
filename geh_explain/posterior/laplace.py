"""Laplace approximations, as fitted by laplace-torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.linear_expansion import linearise
from geh_explain.posterior.loading import load_weights
from geh_explain.posterior.protocols import seed_of_draw


class Laplace:
    """A Gaussian N(w0, S) over the weights around the trained ones, fitted by laplace-torch.

    The approximation is derived for the linearised network f(x, w0) + J(x) (w - w0). By default draws are functions
    of that form, which fit the data about as well as the network itself. Sampled weights in the network itself often
    do not, because a Gaussian of high dimension leaves the neighbourhood in which the expansion holds;
    ``explainer.diagnose`` measures that.

    Parameters
    ----------
    la
        A fitted ``laplace.Laplace(model, ..., subset_of_weights="all")`` or ``"last_layer"`` of the model that is
        explained.
    linearised
        Whether draws are functions of the linearised network. With False, sampled weights are put into the network.

    Raises
    ------
    GEHTypeError
        If ``la`` is not a fitted approximation, or one of a subnetwork.

    Examples
    --------
    Needs laplace-torch, a trained network ``net`` and a ``loader`` of its training data.

    >>> import laplace, geh_explain as geh  # doctest: +SKIP
    >>> la = laplace.Laplace(net, "regression", hessian_structure="kron")  # doctest: +SKIP
    >>> la.fit(loader)  # doctest: +SKIP
    >>> geh.posterior.Laplace(la)  # doctest: +SKIP
    Laplace(KronLLLaplace, linearised=True)
    """

    keeps_below = True

    def __init__(self, la: Any, linearised: bool = True) -> None:
        if not hasattr(la, "sample") or not hasattr(la, "mean"):
            raise GEHTypeError(
                f"Laplace: la is a {type(la).__name__} and not a fitted Laplace approximation; pass "
                "laplace.Laplace(model, ...) after its fit()."
            )
        self.la = la
        self.linearised = linearised
        #: The sampled weights by their names in the model, in the order in which ``la`` flattens them.
        self.weights = _weights_by_name(la)
        n_weights = sum(weight.numel() for weight in self.weights.values())
        if len(la.mean) != n_weights:
            raise GEHTypeError(
                f"Laplace: la has {len(la.mean)} weights, but its layers have {n_weights}; subnetworks are not "
                "supported: use subset_of_weights='all' or 'last_layer'."
            )

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws.

        Raises
        ------
        GEHValueError
            If the weights of ``model`` are not those to which the approximation was fitted.
        """
        parameters = dict(model.named_parameters())
        for name, weight in self.weights.items():
            if name not in parameters or not torch.equal(parameters[name].to(weight), weight):
                raise GEHValueError(
                    f"Laplace: la was fitted to another model, or before it was trained further: parameter {name!r} "
                    "differs. Fit it to the model that is explained."
                )
        for draw in range(n):
            generator = torch.Generator(device=self.la.mean.device).manual_seed(seed_of_draw(seed, draw))
            sample = self.la.sample(1, generator=generator)[0].detach()
            if self.linearised:
                yield linearise(model, self._unflatten(sample - self.la.mean.detach()))
            else:
                yield load_weights(model, self._unflatten(sample), draw, "Laplace")

    def _unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector of all sampled weights as tensors by name."""
        parts = torch.split(vector, [weight.numel() for weight in self.weights.values()])
        return {
            name: part.reshape(weight.shape) for part, (name, weight) in zip(parts, self.weights.items(), strict=True)
        }

    def __repr__(self) -> str:
        return f"Laplace({type(self.la).__name__}, linearised={self.linearised})"


def _weights_by_name(la: Any) -> dict[str, Tensor]:
    """Return the weights over which ``la`` is a distribution, by their names in the model."""
    # For the last layer alone, laplace-torch wraps a copy of the model in a feature extractor.
    last_layer = getattr(la.model, "last_layer", None)
    model, weights = (la.model, la.params) if last_layer is None else (la.model.model, last_layer.parameters())
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[weight]: weight for weight in weights}
