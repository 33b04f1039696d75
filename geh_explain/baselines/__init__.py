"""Other ways to rank pairs of features, to compare with; each returns a :class:`~geh_explain.ranking.PairRanking`."""

from geh_explain.baselines.lasso import lasso
from geh_explain.baselines.nid import nid
from geh_explain.baselines.oracle import oracle
from geh_explain.baselines.trees import shap_trees
from geh_explain.ranking import PairRanking

__all__ = ["PairRanking", "lasso", "nid", "oracle", "shap_trees"]
