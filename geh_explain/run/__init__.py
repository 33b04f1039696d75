"""One run of the explainer, as a straight line.

Read the files in this order: ``options`` and ``pair_request`` (what the call asks for), ``setup`` (what the explainer
was built with), ``profile`` (two passes over the data), ``plan`` (everything decided before the first draw), ``loop``
(the draws), ``point_sums`` (sums over the points in one draw), ``accumulate`` (sums and means of all draws),
``warnings`` and ``record`` (what a user should know, and what was done), ``group_sample`` (rows from which groups are
described), ``source`` (the network and data that a result refers to). ``row_search`` answers ``rows="auto"``,
``pair_search`` finds the pairs of ``explainer.search()``, both by ``hub_search`` where there is no faster way,
``pair_groups`` finds the groups of ``groups="pairwise"``,
``memory_plan`` says what fits into memory, ``columns`` what sums have columns for: pairs, or differences between levels
of categories. ``several_targets`` plans a run of several outputs. ``checkpoint``, ``stored_draws``, ``fingerprint``,
``identity`` and ``distributed`` make long runs safe; ``shards`` plans runs whose ranks read rows of their own;
``threads`` sets the number of threads.
"""
