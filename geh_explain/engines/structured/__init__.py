"""The structured engine: Hessians of networks of linear maps and elementwise functions by one formula.

``engine`` holds the engine, ``recorder`` records a forward pass as steps, ``rules`` say what each torch function does
to directions and to the Hessian, ``program`` runs the recorded steps, ``directions`` has those of the units,
``jacobians`` the forms of directions, and ``pull_back`` maps Hessians at a narrow layer back to the units.
``narrow_sums`` leaves them there, and ``top_pairs`` finds the strongest pairs from them without the others.
"""
