"""Engines: how local interactions are computed."""

from geh_explain.engines.base import Engine
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact
from geh_explain.engines.stein import Stein
from geh_explain.engines.structured.engine import Structured
from geh_explain.engines.sums import GroupSums

__all__ = ["Difference", "Engine", "Exact", "GroupSums", "Stein", "Structured"]
