"""The result of a run: :class:`geh_explain.Interactions`, with its tables, plots, files and exports.

``interactions``
    The class that users hold.
``output``
    Its base class: plots, page, exports and text.
``rules``
    The rules that decide about pairs.
``tables``, ``level_tables``
    Tables of pairs, groups and Monte Carlo errors, and of differences between levels of categories.
``plotting``
    The plots of a result, ``result.plot``.
``files``, ``evidence_files``, ``level_files``
    Saving and loading, as arrays and JSON.
``exports``
    Conversion to networkx and xarray.
"""
