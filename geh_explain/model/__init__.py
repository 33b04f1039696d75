"""The model as one function of unit shifts, and the guarantee that it is returned unchanged.

Reading order: ``preserve`` (use a model and restore all of its state), ``refused_models`` and ``call_errors`` (what
cannot be explained, and exceptions of the model, in words), ``layers`` (which tensor of which layer),
``outputs`` (which tensor of what the model returns), ``view`` (interception of torch calls above the layer), ``cut``
(the model as a function of the shifts ``t`` of the units), ``autograd_graph`` (functions and types in a graph),
``row_independence`` (the checks that the model is one function of each row), ``unit_values`` (means and standard
deviations of the units) and ``unit_names`` (their names).
"""
