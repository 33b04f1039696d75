"""Which pairs of inputs, or of hidden units, interact in a trained network, how strongly, and with what uncertainty?

>>> import torch, geh_explain as geh
>>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
>>> explainer.explain(torch.rand(50, 3), groups=1, progress=False).geh.mean.round(6).tolist()
[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]

Names are imported when they are first used, so that ``import geh_explain`` itself takes no time.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from geh_explain._version import __version__

if _TYPE_CHECKING:
    from geh_explain import baselines, bnn, datasets, demo, engines, errors, inference, interpret, posterior, units
    from geh_explain.analyses.ablation import AblationCheck
    from geh_explain.analyses.diagnosis import Diagnosis
    from geh_explain.analyses.share import InteractionShare
    from geh_explain.analyses.surface import Surface
    from geh_explain.errors import GEHError, GEHWarning
    from geh_explain.explainer import GEHExplainer
    from geh_explain.groups.number import GroupChoice
    from geh_explain.local.explanation import LocalExplanation, LocalExplanations
    from geh_explain.local.plotting import LocalPlots
    from geh_explain.model.layers import Layer
    from geh_explain.results.by_target import InteractionsByTarget
    from geh_explain.results.comparison import Comparison
    from geh_explain.results.interactions import Interactions
    from geh_explain.results.plotting import Plots
    from geh_explain.run.estimate import CostEstimate
    from geh_explain.scores.decisions import Decisions
    from geh_explain.scores.evidence import Evidence
    from geh_explain.scores.main_effects import MainEffects
    from geh_explain.scores.pair_scores import Scores
    from geh_explain.scores.ranking import PairRanking

__all__ = [
    "AblationCheck",
    "Comparison",
    "CostEstimate",
    "Decisions",
    "Diagnosis",
    "Evidence",
    "GEHError",
    "GEHExplainer",
    "GEHWarning",
    "GroupChoice",
    "InteractionShare",
    "Interactions",
    "InteractionsByTarget",
    "Layer",
    "LocalExplanation",
    "LocalExplanations",
    "LocalPlots",
    "MainEffects",
    "PairRanking",
    "Plots",
    "Scores",
    "Surface",
    "__version__",
    "baselines",
    "bnn",
    "datasets",
    "demo",
    "engines",
    "errors",
    "inference",
    "interpret",
    "posterior",
    "units",
]

#: Modules of the public classes; the other public names are modules themselves.
_MODULES = {
    "AblationCheck": "analyses.ablation",
    "Comparison": "results.comparison",
    "CostEstimate": "run.estimate",
    "Decisions": "scores.decisions",
    "Diagnosis": "analyses.diagnosis",
    "Evidence": "scores.evidence",
    "GEHError": "errors",
    "GEHExplainer": "explainer",
    "GEHWarning": "errors",
    "GroupChoice": "groups.number",
    "InteractionShare": "analyses.share",
    "Interactions": "results.interactions",
    "InteractionsByTarget": "results.by_target",
    "Layer": "model.layers",
    "LocalExplanation": "local.explanation",
    "LocalExplanations": "local.explanation",
    "LocalPlots": "local.plotting",
    "MainEffects": "scores.main_effects",
    "PairRanking": "scores.ranking",
    "Plots": "results.plotting",
    "Scores": "scores.pair_scores",
    "Surface": "analyses.surface",
}


def __getattr__(name: str) -> _Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'geh_explain' has no attribute {name!r}")
    module = _import_module(f"geh_explain.{_MODULES.get(name, name)}")
    globals()[name] = value = getattr(module, name) if name in _MODULES else module
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
