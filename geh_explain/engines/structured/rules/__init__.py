"""Rules of the structured engine: what each torch function does to directions, and its terms of the Hessian.

A rule takes the recorder, the function and its arguments, executes the call, records a step and returns the result.
In the formulas J is the Jacobian ``(D, n or 1, *shape)`` of the rule's input, g the output's gradient at its result.
"""
