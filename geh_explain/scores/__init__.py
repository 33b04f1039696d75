"""Scores of pairs: the measures AEH, GEH and EAH, and containers of their posterior draws.

``measures``
    The measures as functions of sums of local interactions.
``point_spread``
    Variance of local interactions over points, and the standard errors of group means that follow.
``group_unions``
    Means in unions of groups, with their errors.
``moments``, ``draws``
    What a run leaves: all draws, or their running mean and standard deviation.
``level_draws``, ``level_means``
    Draws and uncertainty of pairs with a category, from those of differences between levels.
``pair_scores``, ``main_effects``
    One measure of all pairs, and the mean gradient of each unit, with uncertainty.
``pair_cells``
    The groups of a result in which each pair has groups of its own.
``evidence``, ``decisions``
    Outcome of the test on held-out labels, and what a rule decides about each pair.
``pair_names``
    Labels of pairs, which differ for different pairs.
``ranking``
    Pairs in the order of any score, to compare methods.
``protocol``
    The part of a result that plots, reports and exports read.
"""
