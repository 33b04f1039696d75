"""From scores to decisions: intervals, p-values, tests that refit, and error rates where the truth is known.

``crossfit_test`` tests networks on folds that they were not fitted to. ``permutation_test`` refits networks to targets
without interactions. The other names are functions of arrays: intervals and p-values of posterior draws, the
combination of p-values, and comparisons of scores with a known truth.

Files, in the order in which to read them: ``permutation``, ``refits`` (one task of it), ``null_targets`` and
``main_effects`` (the targets that it refits to); ``crossfit`` and ``combination``; ``rows`` (of data of any kind);
``checkpoint``, ``jsonl``, ``workers`` and ``dask_tasks``, which run and keep numbered tasks.
"""

from geh_explain.inference.crossfit import CrossfitTest, crossfit_test
from geh_explain.inference.permutation import PermutationTest, permutation_test
from geh_explain.statistics.combination import cauchy_combination
from geh_explain.statistics.intervals import gaussian_interval, quantile_interval
from geh_explain.statistics.known_truth import auc, coverage, error_rates, roc
from geh_explain.statistics.p_values import bayesian_p_value, benjamini_hochberg, sign_p_value

__all__ = [
    "CrossfitTest",
    "PermutationTest",
    "auc",
    "bayesian_p_value",
    "benjamini_hochberg",
    "cauchy_combination",
    "coverage",
    "crossfit_test",
    "error_rates",
    "gaussian_interval",
    "permutation_test",
    "quantile_interval",
    "roc",
    "sign_p_value",
]
