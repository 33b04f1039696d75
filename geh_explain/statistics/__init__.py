"""Statistics of draws and scores: pure functions of arrays, without models, torch or files.

``intervals``
    Credible intervals from draws, or from their mean and standard deviation.
``p_values``
    Bayesian p-values, the sign rule, and decisions at a false discovery rate.
``differences``
    Differences of two estimates of group means, with intervals and p-values.
``known_truth``
    Error rates, ROC curves and coverage where it is known which pairs interact.
``reliability``
    Reproducibility of a ranking of pairs over posterior draws.
``variance_shares``, ``additive``
    Shares of variance that interactions carry, and fits of additive functions.
"""
