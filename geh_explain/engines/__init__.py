"""Engines: ways to compute the local interactions d2 f / dt_i dt_j.

================ ====================================== =============================================================
engine           formula                                for
================ ====================================== =============================================================
``Structured``   sum_l J_l^T diag(g_l s_l''(z_l)) J_l    networks of linear maps and elementwise functions; fastest
``Exact``        double backward                        everything that autograd differentiates twice
``Difference``   (f_ab - f_a - f_b + f) / (a b)         black boxes, discrete inputs, switching units off
``Stein``        E[d (grad f(x+d) - grad f(x-d))^T]      many units, kinks without smoothing
================ ====================================== =============================================================

``engine="auto"`` takes the first of ``Structured``, ``Exact`` and ``Difference`` that the model allows.

``base`` holds the contract of an engine, then there is one module per engine; ``selection`` chooses one for a run,
``probes``, ``gradient_differences`` and ``custom_functions`` check outputs and second derivatives at some points,
``smoothing`` replaces kinked functions while explaining (``Step`` and ``Radius`` set how sharp they stay),
``twice_differentiable`` those that torch cannot differentiate twice, or only slowly, and ``sums`` is what engines fill.
``third_order`` computes third derivatives and differences, ``level_contrasts`` differences between levels of
categories, beside any engine.
``pair_sums`` are sums over groups that each pair has of its own.
``pair_blocks`` holds the blocks of Hessians that belong to pairs.
"""

from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact
from geh_explain.engines.smoothing.sharpness import Radius, Step
from geh_explain.engines.stein.engine import Stein
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
    "Radius",
    "Rows",
    "Stein",
    "Step",
    "Structured",
]
