"""Other methods that rank pairs of features, for comparison; each returns a :class:`~geh_explain.PairRanking`."""

from geh_explain.baselines._lasso import lasso
from geh_explain.baselines._nid import nid
from geh_explain.baselines._oracle import oracle
from geh_explain.baselines._shap_trees import shap_trees
from geh_explain.scores.ranking import PairRanking

__all__ = ["PairRanking", "lasso", "nid", "oracle", "shap_trees"]
