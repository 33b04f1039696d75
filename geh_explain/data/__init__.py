"""From what a user passes as ``inputs`` to batches of rows that the model can be called with.

:class:`~geh_explain.data.reader.Reader` turns tensors, arrays, data frames, datasets and loaders into
:class:`~geh_explain.data.points.Points`, which yield :class:`~geh_explain.data.rows.Rows`: consecutive points with the
target and the further arguments of the model that belong to them.

Reading order: ``forward_args``, ``frames``, ``rows``, ``points``, ``streams``, ``conversion``, ``blocks``, ``loaders``,
``reader``, ``shards``.
``targets`` selects one of the model's outputs for each row and is independent of the others.
"""
