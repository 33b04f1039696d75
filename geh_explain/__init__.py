"""Which pairs of inputs, or of hidden units, interact in a trained network, how strongly, and with what uncertainty?

>>> import torch, geh_explain as geh
>>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
>>> explainer.explain(torch.rand(50, 3), groups=1, progress=False).geh.mean.round(6).tolist()
[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
"""

from geh_explain import baselines, bnn, datasets, demo, engines, errors, inference, interpret, posterior, units
from geh_explain._version import __version__
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


def __dir__() -> list[str]:
    return sorted(__all__)
