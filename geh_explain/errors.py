"""Errors and warnings of the package.

Every error message names the argument, shows the value that was passed and says what to do instead.

::

    GEHError                         GEHWarning (a UserWarning)
    ├── GEHValueError   (a ValueError)
    ├── GEHTypeError    (a TypeError)
    └── GEHRuntimeError (a RuntimeError)
"""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["GEHError", "GEHRuntimeError", "GEHTypeError", "GEHValueError", "GEHWarning"]


class GEHError(Exception):
    """Base class of the errors that geh_explain raises on purpose.

    Each concrete error is also a ``ValueError``, ``TypeError`` or ``RuntimeError``, so code that is written without
    this package in mind catches it as usual.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> try:
    ...     geh.GEHExplainer(torch.nn.Linear(3, 1), layer="body")
    ... except geh.GEHError as error:
    ...     print(type(error).__name__, isinstance(error, ValueError))
    GEHValueError True
    """


class GEHValueError(GEHError, ValueError):
    """An argument has an accepted type but a value that cannot be used.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> geh.GEHExplainer(torch.nn.Linear(3, 1)).explain(torch.rand(10, 3), draws=0)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: draws=0 must be at least 1.
    """


class GEHTypeError(GEHError, TypeError):
    """An argument has a type that cannot be used.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> geh.GEHExplainer(torch.nn.Linear(3, 1)).explain(torch.rand(10, 3), draws=1.5)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHTypeError: draws=1.5 must be a whole number of at least 1.
    """


class GEHRuntimeError(GEHError, RuntimeError):
    """The model, a posterior or a loader behaves in a way that cannot be explained.

    Examples are an output that is NaN, a layer that the forward pass never calls, and a model whose rows depend on one
    another.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x.prod(1) / 0, posterior=geh.posterior.PointEstimate())
    >>> try:
    ...     explainer.explain(torch.rand(10, 3), progress=False)
    ... except RuntimeError as error:
    ...     print("NaN or infinite" in str(error))
    True
    """


class GEHWarning(UserWarning):
    """A legal call whose result is probably not what the user expects.

    The warnings of a run are also stored in ``result.settings["warnings"]``.

    Examples
    --------
    Silence them with the filters of the standard library:

    >>> import warnings, geh_explain as geh
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", geh.GEHWarning)
    """


def warn(message: str) -> None:
    """Issue a :class:`GEHWarning` that is attributed to the first caller outside this package.

    The number of frames between the caller and here differs from warning to warning, so the stack is walked instead of
    passing a fixed ``stacklevel``.
    """
    package = os.path.dirname(__file__)
    frame = sys._getframe(1)
    stacklevel = 2
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename).startswith(package):
        frame = frame.f_back
        stacklevel += 1
    warnings.warn(message, GEHWarning, stacklevel=stacklevel)
