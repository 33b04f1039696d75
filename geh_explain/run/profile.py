"""The two passes over the data before the first draw.

Each pass runs the model once per batch of rows and feeds everybody who needs something from it. The second pass needs
results of the first: the sharpness of smoothing, the groups, the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from geh_explain._types import Ints
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun
from geh_explain.engines.smoothing.change import SmoothingChange
from geh_explain.engines.smoothing.survey import KinkSurvey
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.groups.grouping import label_type
from geh_explain.groups.kmeans import GroupTree
from geh_explain.groups.positions import PositionSample, positions_of
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments


@dataclass(frozen=True)
class FirstPass:
    """What the first pass collects; None where it is not needed.

    ``positions`` are for finding groups, ``moments`` for ``scale="std"`` and steps of smoothing, ``kinks`` for its
    sharpness, and ``change`` holds the original outputs, with which smoothed ones are compared. These come from the
    same forward passes; with ``compare_with_model`` the model itself computes them, in another one per batch.
    """

    positions: PositionSample | None
    moments: UnitMoments | None
    kinks: KinkSurvey | None
    change: SmoothingChange
    compare_with_model: bool

    def run(self, cut: Cut, points: Points, batch_size: int | None) -> None:
        """Collect everything in one forward pass per batch; no pass where nothing is needed."""
        if self.positions is None and self.moments is None and self.kinks is None:
            return
        for rows in points.split(batch_size):
            if self.kinks is None:
                # Only what is below the layer runs.
                activations = cut.activations(rows)
            else:
                with cut.viewed(self.kinks):
                    activations, outputs = cut.traced_outputs(rows)
                cut.selected(outputs, rows)  # raises if it is not finite
                if self.compare_with_model:
                    with torch.no_grad():
                        outputs = cut.all_outputs(rows)
                self.change.add_original(outputs, cut.selected(outputs, rows))
            if self.positions is not None:
                self.positions.add(positions_of(cut, activations))
            if self.moments is not None:
                self.moments.add(cut.units.values(activations))


@dataclass(frozen=True)
class SecondPass:
    """What the second pass collects; None where it is not needed.

    ``tree`` assigns the points to groups where groups were found from a sample, ``engine`` observes the values of the
    units, ``smoothing`` gives the outputs that ``change`` compares with the original ones.
    """

    tree: GroupTree | None
    engine: EngineRun | None
    smoothing: Smoothing | None
    change: SmoothingChange

    def run(self, cut: Cut, points: Points, batch_size: int | None) -> Ints | None:
        """Collect everything in one forward pass per batch; return the labels of all points if ``tree`` is given."""
        labels = None
        if self.tree is None and self.engine is None and self.smoothing is None:
            return None
        if self.tree is not None:
            labels = np.empty(len(points), dtype=label_type(len(points), self.tree.n_groups))
        for rows in points.split(batch_size):
            if self.smoothing is None:
                activations = cut.activations(rows)
            else:
                with cut.viewed(self.smoothing):
                    activations, outputs = cut.traced_outputs(rows)
                self.change.add_smoothed(outputs, rows.target)
            if self.tree is not None and labels is not None:
                labels[rows.start : rows.start + len(rows)] = self.tree.labels(positions_of(cut, activations))
            if self.engine is not None:
                self.engine.observe(cut.units.values(activations))
        return labels
