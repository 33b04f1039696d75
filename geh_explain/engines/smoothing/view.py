"""Views that count and replace the kinked calls above a cut."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geh_explain.engines.smoothing.smooth_functions import FORMS, Sharpness
from geh_explain.engines.twice_differentiable import DoubleBackwardView

#: Names that NumPy gives to arguments, which torch takes too.
_TORCH_NAMES = {"axis": "dim", "keepdims": "keepdim"}

#: Sharpness of one kinked call: of all entries, or of each entry of a row (1, *shape); None leaves the call unchanged.
Beta = float | Tensor | None

#: What the smooth form of one call takes: a sharpness or bandwidths; None leaves the call unchanged.
Form = Sharpness | None


class KinkedCallView(DoubleBackwardView):
    """Counts the calls of kinked functions in each forward pass, and passes them to :meth:`handle_kinked`.

    A kinked call is identified by its position in the order of calls, as one function may be called several times with
    inputs of different scales. Calls on tensors of integers have no derivative and do not count.

    Attributes
    ----------
    n_calls
        Number of kinked calls in this forward pass so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_calls = 0

    def begin(self) -> None:
        """Start a forward pass: count from 0."""
        super().begin()
        self.n_calls = 0

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one torch call, counted if it is a kinked one."""
        name = getattr(func, "__name__", "").strip("_")
        x = args[0] if args else kwargs.get("input")
        if name not in FORMS or not isinstance(x, Tensor) or not x.is_floating_point():
            return super().handle(func, args, kwargs)
        self.n_calls += 1
        kwargs = {_TORCH_NAMES.get(key, key): value for key, value in kwargs.items()}
        return self.handle_kinked(name, func, args, kwargs)

    @abstractmethod
    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of the kinked call number ``n_calls``; ``name`` is its key in ``FORMS``."""

    def call_form(
        self, name: str, func: Callable[..., Any], form: Form, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of a kinked call by its smooth form, unchanged where ``form`` is None."""
        if form is None:
            return DoubleBackwardView.handle(self, func, args, kwargs)
        if func is torch.adaptive_max_pool1d:
            # Unlike the function of the same name in torch.nn.functional, this one always returns indices.
            kwargs = {**kwargs, "return_indices": True}
        if func.__name__.endswith("_") or kwargs.get("inplace"):
            return args[0].copy_(FORMS[name](form, args[0].clone(), *args[1:], **kwargs))
        return FORMS[name](form, *args, **kwargs)


class Smoothing(KinkedCallView):
    """Replaces each kinked call by its smooth form of sharpness beta, as modules and as functional calls alike.

    Parameters
    ----------
    names
        Names of the kinked functions, in the order of their calls in a forward pass.
    betas
        Sharpness of each of these calls: one number, or one for each entry ``(1, *shape)``; None leaves a call
        unchanged.
    step
        Length of the step that set the sharpness, in standard deviations of the units; None if it was given.
    """

    def __init__(self, names: Sequence[str], betas: Sequence[Beta], step: float | None = None) -> None:
        super().__init__()
        self.names = tuple(names)
        self.betas = tuple(betas)
        self.step = step

    def times(self, factor: float) -> Smoothing:
        """Return the same with all sharpnesses times ``factor``."""
        betas = [None if beta is None else beta * factor for beta in self.betas]
        return Smoothing(self.names, betas, None if self.step is None else self.step / factor)

    def next_form(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Form:
        """Return what the smooth form of the next kinked call of this forward pass takes; None to leave it unchanged.

        Parameters
        ----------
        name
            Name of the function, its key in ``FORMS``.
        args, kwargs
            Arguments of the call.
        """
        return self._form(self.n_calls + 1, name, args, kwargs)

    def skip_call(self) -> None:
        """Count a kinked call that is computed elsewhere, in closed form."""
        self.n_calls += 1

    def typical_betas(self) -> list[float | None]:
        """Return one sharpness for each call, the median where it has several; None for calls left unchanged."""
        return [float(beta.median()) if isinstance(beta, Tensor) else beta for beta in self.betas]

    def typical_sigma(self) -> float | None:
        """Return the standard deviation of the units, for smoothing by a radius; else None."""
        return None

    def _form(self, number: int, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Form:
        return self._beta(number, args[0] if args else kwargs["input"])

    def _beta(self, number: int, x: Tensor) -> Beta:
        # Rows that take another path may make more calls than were surveyed, or others.
        beta = self.betas[number - 1] if number <= len(self.betas) else None
        if isinstance(beta, Tensor) and beta.shape[1:] != x.shape[1:]:
            return float(beta.square().reciprocal().mean().rsqrt())
        return beta

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call by its smooth form, in place where the call is in place."""
        return self.call_form(name, func, self._form(self.n_calls, name, args, kwargs), args, kwargs)
