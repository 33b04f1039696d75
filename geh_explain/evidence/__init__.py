"""The held-out test: do labels that training never used support the interactions of a network?

Read ``held_out`` first, the test of all pairs, and ``pair_tests``, that of one. ``labels`` reads labels,
``pair_functions`` evaluates the network's interaction of a pair at the held-out rows, ``nuisance`` has the columns
beside which it is tested, ``true_scores`` the interval of the true score, ``explained`` what is taken from an
explanation, and ``training_rows`` finds rows of the training data.
"""
