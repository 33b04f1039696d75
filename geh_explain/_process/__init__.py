"""State of the whole process: Ctrl-C, and the global random generators."""

from geh_explain._process.generators import OwnGenerators, OwnStates, other_threads_draw, seeded_generators
from geh_explain._process.interrupts import (
    SafeContext,
    defer_interrupt,
    raise_waiting_interrupt,
    safe_contextmanager,
)
from geh_explain._process.torch_generator import OwnTorchGenerator, draws_are_redirected

__all__ = [
    "OwnGenerators",
    "OwnStates",
    "OwnTorchGenerator",
    "SafeContext",
    "defer_interrupt",
    "draws_are_redirected",
    "other_threads_draw",
    "raise_waiting_interrupt",
    "safe_contextmanager",
    "seeded_generators",
]
