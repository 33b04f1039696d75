"""The result of a run: :class:`geh_explain.Interactions`, with its tables, plots, files and exports.

``interactions``
    The class that users hold.
``by_target``
    The results of several targets of one call.
``output``
    Its base class: plots, page, exports and text.
``measured``
    Its base class: questions to the network of a result, the share of interactions and triples.
``regions``, ``group_shares``
    Its other base classes: groups of points, and ``compare``; sizes and weights of groups.
``comparability``, ``comparing``, ``comparison``
    Whether two results can be compared, their differences, and the object that holds them.
``rules``
    The rules that decide about pairs.
``tables``, ``level_tables``
    Tables of pairs, groups and Monte Carlo errors, and of differences between levels of categories.
``plotting``
    The plots of a result, ``result.plot``.
``files``, ``evidence_files``, ``group_files``, ``level_files``
    Saving and loading, as arrays and JSON.
``exports``
    Conversion to networkx and xarray.
"""
