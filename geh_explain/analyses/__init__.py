"""Analyses beside the interactions themselves, one file each.

``screening`` ranks single units by their gradients, ``surface`` measures the joint effect of a pair on a grid,
``ablation`` checks scores by switching units off, ``diagnosis`` compares the draws of a posterior with known targets.
``share`` is the part of the output's variance that interactions carry, measured by ``share_design`` and
``share_measurement``; ``triples`` computes how third units change pairs.
"""
