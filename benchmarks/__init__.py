"""Timings of the package against its rivals, as ratios within one run: ``python -m benchmarks``."""
