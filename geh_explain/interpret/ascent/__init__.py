"""Gradient ascent in the inputs towards high activations of units.

``objectives`` defines the maximised numbers, ``preactivations`` the activations behind them, ``parametrisation`` the
optimised variables within ``bounds``, ``statistics`` what images have in common with photographs, ``reference`` the
inputs on which that is measured. ``gradient_ascent`` takes the ``steps``, and ``maximisation`` has the public function
:func:`~geh_explain.interpret.maximise`.
"""
