"""The result of a run: :class:`geh_explain.Interactions`, with its tables, plots, files and exports.

``interactions``
    The class that users hold.
``by_target``
    The results of several targets of one call.
``group_shares``, ``output``
    Its base classes: sizes of groups; plots, page, exports and text.
``measured``
    A base class too: questions to the network of a result, the share of interactions and triples.
``rules``
    The rules that decide about pairs.
``tables``
    Tables of pairs, groups and Monte Carlo errors.
``plotting``
    The plots of a result, ``result.plot``.
``files``, ``evidence_files``
    Saving and loading, as arrays and JSON.
``exports``
    Conversion to networkx and xarray.
"""
