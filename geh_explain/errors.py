"""What goes wrong, in words: every error names the argument, what was given and the way out."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["GEHError", "GEHRuntimeError", "GEHTypeError", "GEHValueError", "GEHWarning"]


class GEHError(Exception):
    """Base of every error that geh_explain raises on purpose.

    Each concrete error is also a ``ValueError``, ``TypeError`` or ``RuntimeError``, so that code
    which does not know this package catches it as usual.

    >>> import torch, geh_explain as geh
    >>> try:
    ...     geh.GEHExplainer(torch.nn.Linear(3, 1), layer="body")
    ... except geh.GEHError as error:
    ...     print(type(error).__name__, isinstance(error, ValueError))
    GEHValueError True
    """


class GEHValueError(GEHError, ValueError):
    """An argument has the right type and an impossible value."""


class GEHTypeError(GEHError, TypeError):
    """An argument has a type that cannot be used."""


class GEHRuntimeError(GEHError, RuntimeError):
    """The model did something that cannot be explained."""


class GEHWarning(UserWarning):
    """Something legal that probably is not what was meant.

    >>> import warnings, geh_explain as geh
    >>> warnings.simplefilter("ignore", geh.GEHWarning)  # for those who know
    >>> warnings.resetwarnings()
    """


def warn(message: str) -> None:
    """Warn with :class:`GEHWarning`, pointing at the first line outside this package."""
    package = os.path.dirname(__file__)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename).startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, GEHWarning, stacklevel=level)
