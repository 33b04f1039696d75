"""Second derivatives along the units, added up by group: one file per engine."""

from __future__ import annotations

from geh_explain.errors import GEHValueError
from geh_explain.hessian.base import Engine, GroupSums
from geh_explain.hessian.exact import ExactEngine
from geh_explain.hessian.zero import why_zero

__all__ = ["Engine", "GroupSums", "check_engine", "choose_engine", "why_zero"]

_ENGINES = ("exact",)


def check_engine(engine: str) -> None:
    """Refuse an unknown engine."""
    if engine != "auto" and engine not in _ENGINES:
        raise GEHValueError(f"engine={engine!r} is unknown; use 'auto' or one of {', '.join(map(repr, _ENGINES))}.")


def choose_engine(engine: str, batch_size: int | None) -> Engine:
    """Return the engine that computes the local Hessians."""
    return ExactEngine(batch_size)
