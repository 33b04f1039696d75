"""From scores to decisions: intervals, p-values, permutation tests, and error rates where the truth is known."""

from geh_explain.inference.decisions import (
    bayesian_p_value,
    benjamini_hochberg,
    gaussian_interval,
    quantile_interval,
    sign_p_value,
)
from geh_explain.inference.permutation import PermutationTest, permutation_test
from geh_explain.inference.truth import auc, coverage, error_rates, roc

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
