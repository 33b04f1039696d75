"""Engines: how local interactions are computed.

Read ``base`` for the contract, then one file per engine: ``exact`` (double backward), ``structured`` (linear maps and
elementwise functions), ``difference`` (mixed differences) and ``stein`` (gradients under noise). ``default`` chooses
between them, ``smoothing`` replaces kinked functions.
"""

from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact
from geh_explain.engines.stein import Stein
from geh_explain.engines.structured.engine import Structured
from geh_explain.engines.sums import GroupSums
from geh_explain.model.cut import Cut

__all__ = [
    "Cut",
    "Difference",
    "Engine",
    "EngineRun",
    "Exact",
    "GroupSums",
    "Limits",
    "Rows",
    "Stein",
    "Structured",
]
