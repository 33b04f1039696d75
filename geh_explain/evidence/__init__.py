"""The held-out test: do labels that training never used support the interactions of a network?

Read ``held_out`` first, the test of all pairs, and ``pair_tests``, that of one. ``labels`` reads labels,
``label_arrays`` turns what users pass into arrays, ``fit_check`` compares labels with outputs, ``pair_functions``
evaluates the network's interaction of a pair at the held-out rows, ``covariates`` is what these rows contain beside the
units, ``nuisance`` has the columns beside which a pair is tested, ``copula`` the conditional means among them,
``true_scores`` the interval of the true score, ``explained`` what is taken from an explanation, and ``training_rows``
finds rows of the training data and copies.
"""
