"""The result of a run: :class:`geh_explain.Interactions`, with its tables, plots, files and exports.

``interactions``
    The class that users hold.
``output``
    Its base class: plots, page, exports and text.
``measured``
    Its base class: questions to the network of a result, the share of interactions and triples.
``regions``
    Its other base class: groups of points, and ``compare``.
``comparability``, ``comparing``, ``comparison``
    Whether two results can be compared, their differences, and the object that holds them.
``rules``
    The rules that decide about pairs.
``tables``
    Tables of pairs, groups and Monte Carlo errors.
``plotting``
    The plots of a result, ``result.plot``.
``files``, ``evidence_files``, ``group_files``
    Saving and loading, as arrays and JSON.
``exports``
    Conversion to networkx and xarray.
"""
