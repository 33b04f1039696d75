"""Drawing functions, one module per plot.

Each function ``draw_...`` takes data and ``ax=`` (matplotlib axes, or None for a new figure) and returns the axes;
plots of several axes return the figure. None calls ``show`` or changes matplotlib's global style. Matplotlib is
imported inside functions, so that importing the package does not load it.

Users call these functions through ``result.plot`` and the ``plot()`` methods of other objects. The modules import
nothing that produces results: they take arrays, tables, :class:`~geh_explain.scores.pair_scores.Scores`, or protocols.

``axes``, ``palette``, ``pairs``, ``circle``
    Shared helpers: axes and labels, colours, selection of units and pairs, layout of the network.
``heatmap``, ``intervals``, ``network``, ``regions``, ``densities``
    Plots of a result.
``comparison``
    The plot of two results.
``surface``, ``shares``, ``calibration``, ``group_number``, ``permutation_null``, ``training_curve``, ``exemplars``,
``gallery``
    Plots of analyses, tests, training and interpretations.
"""
