"""Gradient ascent in the inputs towards high activations of units.

``objectives`` defines the maximised numbers, ``parametrisation`` the optimised variables, ``gradient_ascent`` the
steps, and ``maximisation`` the public function :func:`~geh_explain.interpret.maximise`.
"""
