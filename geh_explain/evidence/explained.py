"""What the held-out test takes from an explanation: its target, and the points whose true scores are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.evidence.pair_functions import unit_values
from geh_explain.groups.grouping import Grouping
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import unit_moments
from geh_explain.run.record import RunRecord
from geh_explain.run.recorded_arguments import has_target_per_row, stored_target

#: True scores are averages over at most this many points.
_MAX_POINTS = 20_000


@dataclass(frozen=True)
class GroupMeans:
    """What is known of an explanation without its points: shares (M,) of the groups and signed means (M, P)."""

    shares: Floats
    signed: Floats

    def third_order_share(self, index: int) -> float:
        """Return the share of a pair's score, from 0 to 1, that the mean over all points does not explain.

        The mean interaction is taken to be the same in all groups; what groups add to it depends on other units.

        >>> groups = GroupMeans(np.array([0.5, 0.5]), np.array([[3.0, 1.0], [-1.0, 1.0]]))
        >>> groups.third_order_share(0), groups.third_order_share(1)
        (1.0, 0.0)
        """
        network = self.signed[:, index]
        score = float(np.abs(network) @ self.shares)
        if score == 0:
            return 0.0
        mean = float(network @ self.shares)
        return float(np.clip(1 - mean * float(np.sign(network) @ self.shares) / score, 0, 1))


@dataclass(frozen=True)
class Explained:
    """The points that were explained, as far as true scores need them.

    Attributes
    ----------
    values
        Values (n, D) of the units at the explained points, or at a regular sample of them.
    labels
        Group (n,) of each of these points.
    shares
        Share (M,) of all points in each group, or of their case weights.
    signed
        The network's mean interactions (M, P) by group.
    factors
        What the units are multiplied by (D,).
    weights
        Case weights (n,) of the points, None for 1.
    """

    values: Floats
    labels: Ints
    shares: Floats
    signed: Floats
    factors: Floats
    weights: Floats | None = None

    @classmethod
    def of(cls, cut: Cut, points: Points, grouping: Grouping, signed: Floats, factors: Floats) -> Explained:
        """Return the points of an explanation with their groups, and mean interactions ``signed`` (M, P)."""
        labels, weights = grouping.labels, grouping.weights
        step = -(-len(labels) // _MAX_POINTS)
        values = unit_values(cut, points, None)[::step]
        shares = grouping.weight_sums / len(labels)
        return cls(values, labels[::step], shares, signed, factors, None if weights is None else weights[::step])

    def group_means(self, values: Floats) -> Floats:
        """Return the weighted means (M, ...) of ``values`` (n, ...) over the points of each group; 0 for empty ones."""
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        members = np.zeros((len(self.labels), len(self.shares)))
        members[np.arange(len(members)), self.labels] = weights
        totals = members.sum(axis=0)
        return np.asarray((members / np.where(totals > 0, totals, 1.0)).T @ values)


def recorded_target(record: RunRecord) -> Target:
    """Return the target of an explanation, for which pairs are tested.

    Raises
    ------
    GEHTypeError
        If it has one entry per row.

    Examples
    --------
    >>> recorded_target(RunRecord(target=[0, 2], points=100))
    (0, 2)
    """
    if has_target_per_row(record):
        raise GEHTypeError(
            "result: it was explained with a target per row, and a test needs one target for all rows; explain one "
            "class at a time, target=3 for instance, and give the labels of all rows."
        )
    target: Target = stored_target(record)
    return target


def recorded_factors(record: RunRecord, cut: Cut, points: Points, weights: Floats | None = None) -> Floats:
    """Return what the units of an explanation of ``points`` with case ``weights`` (n,) were multiplied by (D,)."""
    if record.scale is None:
        return np.ones(cut.n_units)
    if record.scale == "std":
        return unit_moments(cut, points, None, weights).std
    if isinstance(record.scale, list) and len(record.scale) == cut.n_units and all(map(_is_finite, record.scale)):
        return np.asarray(record.scale, dtype=float)
    raise GEHValueError(
        f"explained: the result has scale={record.scale!r}, whose numbers were not stored; use "
        "explain(..., evidence=(X_held, y_held)) instead."
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and isfinite(value)
