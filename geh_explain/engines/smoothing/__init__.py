"""Smoothing of kinked functions while explaining.

A network of ReLUs is piecewise linear: its Hessian is 0 almost everywhere, and all curvature sits on the kinks. While
explaining, each kinked function above the cut is replaced by a smooth one of sharpness beta, softplus(beta x) / beta
for ReLU. Averaged over points that cross a kink, its second derivative is a kernel estimate of the curvature on the
kink, with bandwidth 1 / beta. By default the bandwidth is how far the input of the function moves while the units
change by 0.75 standard deviations. ``Radius`` takes the movement within a ball around each row instead, and Gaussian
forms. The model itself is not changed.

``smooth_functions``, ``gaussian`` and ``pooling`` hold the smooth forms, ``sharpness`` the rule for beta, ``survey``
measures what enters the kinked functions, ``movement`` how far that moves in a step, ``bandwidths`` and ``maxima`` in a
ball, ``view`` and ``radius`` replace the functions, ``change`` compares the outputs before and after.
"""
