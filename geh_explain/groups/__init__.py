"""Groups of points: which points are averaged together before the absolute value is taken, and how many groups.

M-GEH = sum_m (n_m / N) |mean over group m of H| lies between AEH (one group) and EAH (one group per point). Groups come
from a clustering of the points by :mod:`~geh_explain.groups.kmeans`, from labels of the user, or from a clusterer of
scikit-learn; or each pair has groups of its own, see :mod:`~geh_explain.groups.pairwise`.

Reading order: ``kmeans`` (nested clusters), ``grouping`` (the group of each point), ``number`` (how many groups),
``positions`` (the coordinates that are clustered) and ``assignment`` (from the argument ``groups`` to a grouping).
``descriptions`` (groups in words, by rules or else by ``centres``), ``group_info`` (what a result knows of its groups)
and ``alignment`` (groups that two results have in common) come after a run.
"""
