"""Timings of the package and of other methods, as ratios within one run: ``python -m benchmarks``."""
