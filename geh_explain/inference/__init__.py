"""From scores to decisions: intervals, p-values, permutation tests, and error rates where the truth is known.

``permutation_test`` refits networks to permuted targets. The other names are functions of arrays: intervals and
p-values of posterior draws, and comparisons of scores with a known truth.
"""

from geh_explain.inference.permutation import PermutationTest, permutation_test
from geh_explain.statistics.intervals import gaussian_interval, quantile_interval
from geh_explain.statistics.known_truth import auc, coverage, error_rates, roc
from geh_explain.statistics.p_values import bayesian_p_value, benjamini_hochberg, sign_p_value

__all__ = [
    "PermutationTest",
    "auc",
    "bayesian_p_value",
    "benjamini_hochberg",
    "coverage",
    "error_rates",
    "gaussian_interval",
    "permutation_test",
    "quantile_interval",
    "roc",
    "sign_p_value",
]
