"""The result of a run: :class:`geh_explain.Interactions`, with its tables, plots, files and exports.

``interactions``
    The class that users hold.
``tables``
    Tables of pairs, groups and Monte Carlo errors, and the rules of significance.
``plotting``
    The plots of a result, ``result.plot``.
``files``
    Saving and loading, as arrays and JSON.
``exports``
    Conversion to networkx and xarray.
"""
