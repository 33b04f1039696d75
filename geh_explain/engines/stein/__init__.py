"""Stein's engine: the Hessian of the smoothed network from gradients under Gaussian noise.

``engine`` holds the engine, ``noise`` draws random numbers that do not depend on the batch size, ``products`` has the
means and variances of samples by matrix products, ``control`` the Hessian that is subtracted from the samples to make
them less noisy, and ``pilot`` chooses their number.
"""
