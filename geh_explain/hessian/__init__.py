"""How local interactions are computed: one file per engine, and the choice between them."""

from geh_explain.hessian.base import Engine, GroupSums
from geh_explain.hessian.difference import Difference
from geh_explain.hessian.exact import Exact
from geh_explain.hessian.stein import Stein
from geh_explain.hessian.structured import Structured

__all__ = ["Difference", "Engine", "Exact", "GroupSums", "Stein", "Structured"]
