"""The accumulator of draws: sums over groups, the choice of the number of groups, means or moments over draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from geh_explain._memory import trim_heap
from geh_explain._types import Floats
from geh_explain.engines.sums import GroupSums
from geh_explain.groups.grouping import Grouping, from_tree
from geh_explain.groups.kmeans import GroupTree
from geh_explain.groups.number import GroupChoice, choose_group_number, scores_by_group_number
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.run.plan import RunPlan
from geh_explain.scores.cluster_spread import ClusterSpread
from geh_explain.scores.draws import DrawMoments, Draws, LevelDraws
from geh_explain.scores.level_draws import PairReduction
from geh_explain.scores.measures import geh
from geh_explain.scores.noise_share import NoiseShare
from geh_explain.scores.point_spread import PointSpread
from geh_explain.scores.weighted_spread import WeightedPointSpread
from geh_explain.statistics.settled_order import order_is_settled

#: Pairs that are processed at a time where there are very many.
_PAIRS_AT_ONCE = 65536
#: How many of the strongest pairs must have a settled order, from which draw on this is looked at, and how often.
_SETTLED_PAIRS = 10
_MIN_SETTLED_DRAWS = 20
_DRAWS_BETWEEN_LOOKS = 10


class DrawAccumulator:
    """Collects the sums of one draw after the other, and returns the means over the points of each group.

    With a tree of groups their number is open. Sums are then over the finest groups until the pilot draws are there;
    these decide on the number, and all sums are merged to it. Where the expected draws would take more than a quarter
    of the memory, only their means and standard deviations are kept; another quarter is for one chunk of work.

    Parameters
    ----------
    plan
        The plan of the run.
    expected
        How many draws will come.
    """

    def __init__(self, plan: RunPlan, expected: int) -> None:
        self.grouping: Grouping = plan.grouping
        #: How the number of groups was chosen, once it is.
        self.choice: GroupChoice | None = None
        #: Number of draws that were taken so far, and that will be.
        self.n_draws = 0
        self.expected = expected
        #: Means and standard deviations over draws, where the draws themselves would not fit.
        self.moments: DrawMoments | None = None
        #: How much of the draws in ``moments`` is noise of the engine.
        self.noise_share = NoiseShare()
        self._tree: GroupTree | None = plan.tree
        self._pilot_draws = plan.pilot_draws
        self._factors = plan.factors
        self._pairs = plan.pairs
        #: Differences between levels, which sums have columns for; None without categories.
        self._contrasts = None if plan.levels is None else plan.levels.contrasts
        self._reduction: PairReduction | None = None
        self._max_bytes = plan.budget / 4
        self._sampled = False
        #: Whether the order of the strongest pairs was settled at the last look.
        self.settled = False
        #: After which draw the order of the strongest pairs is looked at next; None where draws do not end early.
        self._next_look = _MIN_SETTLED_DRAWS if plan.options.stops_when_settled else None
        self._signed: list[Floats] = []
        self._absolute: list[Floats] = []
        self._variance: list[Floats] = []
        self._slopes: list[Floats] = []
        #: Spread over points, and sums (total, squares, counts) of the draws that wait for the number of groups; with
        #: case weights also those of w^2 h.
        self._point_spread: PointSpread | WeightedPointSpread | None = None
        self._point_sums: list[tuple[Floats, ...]] = []
        #: The same for clusters of points: sums over cells.
        self._cells = plan.cells
        self._point_draws = plan.point_draws
        self._cluster_spread = (
            None
            if plan.cells is None
            else ClusterSpread(
                plan.cells.clusters, np.bincount(plan.cells.labels, plan.grouping.weights, len(plan.cells))
            )
        )
        self._cell_sums: list[Floats] = []

    def next_stop(self) -> int:
        """Return up to which draw groups and cells stay as they are, and draws do not end.

        The pilot draws decide on the number of groups. Looks at the order of the pairs come after the same draws
        whatever number of draws is computed at once.
        """
        stop = self.expected if self._tree is None else min(self.expected, self._pilot_draws)
        if self._next_look is not None and self._next_look > self.n_draws:
            stop = min(stop, self._next_look)
        return stop if self._cells is None or self.n_draws >= self._point_draws else min(stop, self._point_draws)

    def take(self, sums: GroupSums) -> None:
        """Add the sums of one more draw, or of several.

        Absolute sums may be over a sample of the points: ``sums.skipped`` counts those that are missing.
        """
        counted = len(self.grouping.labels) - sums.skipped
        self._sampled |= sums.skipped > 0
        for draw in range(len(sums.signed)):
            self.n_draws += 1
            self._signed.append(sums.signed[draw].numpy())
            self._absolute.append(sums.absolute[draw].numpy() / counted)
            if sums.variance is not None:
                self._variance.append(sums.variance[draw].numpy())
            if sums.slopes is not None:
                self._slopes.append(sums.slopes[draw].numpy())
            if sums.squares is not None and sums.counts is not None and draw < len(sums.squares):
                totals = [sums.signed if sums.visited is None else sums.visited]
                if self.grouping.weights is not None:
                    totals.insert(0, sums.signed)
                self._point_sums.append(tuple(part[draw].numpy() for part in (*totals, sums.squares, sums.counts)))
            if sums.cells is not None:
                self._cell_sums.append(sums.cells[draw].numpy())
            if self.n_draws == self._pilot_draws:
                self.choose_group_number()
        if self._tree is None:
            self._fold()

    def choose_group_number(self) -> None:
        """Choose the number of groups from the draws so far, if it is still open, and merge to it."""
        tree, self._tree = self._tree, None
        if tree is None:
            return
        # Draw by draw, and in place: for thousands of units each array is a large one.
        scores = scores_by_group_number(tree, self._signed[0], len(self.grouping.labels))
        for signed in self._signed[1:]:
            scores += scores_by_group_number(tree, signed, len(self.grouping.labels))
        scores *= np.abs(self._pair_factors()) / len(self._signed)
        if self._contrasts is not None:
            scores = self._contrasts.by_pair(scores)
        self.choice = choose_group_number(scores, tree.n_places)
        if self._max_bytes < 8 * scores.nbytes:
            self.choice = replace(self.choice, scores=scores[:, :0])  # they are for the curve only
        del scores
        self._signed = [tree.merge(signed, self.choice.chosen) for signed in self._signed]
        self._variance = [tree.merge(variance, self.choice.chosen) for variance in self._variance]
        self._slopes = [tree.merge(slopes, self.choice.chosen) for slopes in self._slopes]
        self._point_sums = [tuple(tree.merge(part, self.choice.chosen) for part in sums) for sums in self._point_sums]
        weights = self.grouping.weights
        self.grouping = replace(from_tree(tree, self.grouping.labels, self.choice.chosen), weights=weights)
        self._fold_points()
        self._fold_cells()
        trim_heap()

    def _fold_points(self) -> None:
        """Add sums of squares to the spread over points."""
        labels, names, weights = self.grouping.labels, self.grouping.names, self.grouping.weights
        if self._point_spread is None:
            weighted = None if weights is None else WeightedPointSpread(weights, labels, len(names))
            self._point_spread = PointSpread() if weighted is None else weighted
        while self._point_sums:
            sums = self._point_sums.pop(0)
            if isinstance(self.grouping, PairGrouping):
                # All points are visited, and engines do not count them by the groups of each pair.
                sums = (*sums[:-1], self.grouping.sizes.astype(np.float64))
            self._point_spread.add(*sums)

    def _fold_cells(self) -> None:
        """Add sums over cells to the spread over clusters."""
        while self._cell_sums:
            assert self._cells is not None
            assert self._cluster_spread is not None
            groups = self.grouping.labels[self._cells.first]
            self._cluster_spread.add(self._cell_sums.pop(0), groups, len(self.grouping.names))

    def _fold(self) -> None:
        """Add sums of squares to the spread, and reduce draws to moments if all of them would not fit into memory."""
        self._fold_points()
        self._fold_cells()
        parts = (self._signed, self._absolute, self._variance)
        bytes_per_draw = sum(part[0].nbytes for part in parts if part) if self.moments is None else 0
        if self.expected * bytes_per_draw > self._max_bytes:
            levels = None if self._contrasts is None else LevelDraws(self._contrasts, DrawMoments())
            self.moments = DrawMoments(levels=levels)
        while self.moments is not None and self._signed:
            draws = self._take_means(1)
            self.noise_share += NoiseShare.of(draws, self.grouping.weight_sums)
            self.moments.add(draws, self.grouping.weight_sums)

    def _pair_factors(self) -> Floats | float:
        """Return the products of the factors of both units of each column of sums, 1.0 where all factors are 1.

        A column is a pair (P,), or with categories a pair of numeric units or a difference between levels.
        """
        if (self._factors == 1).all():
            return 1.0
        first, second = self._pairs.ends
        products = np.asarray(self._factors[first] * self._factors[second])
        return products if self._contrasts is None else self._contrasts.by_column(products)

    def result(self) -> Draws | DrawMoments:
        """Return the means of all draws, or their moments; each unit is multiplied by its factor.

        The sums are released: it can be called once.
        """
        draws = self._take_means(len(self._signed)) if self.moments is None else self.moments
        factors = np.abs(self._pair_factors())
        if self._cluster_spread is not None and self._cluster_spread.n_draws:
            of_clusters = self._cluster_spread.cluster_errors()
            of_clusters = replace(of_clusters, covariance=of_clusters.covariance * factors**2)
            of_points = self._cluster_spread.errors() * factors
            if self._reduction is not None:
                return self._reduction.with_errors(draws, of_points, of_clusters)
            return replace(draws, point_errors=of_points, cluster_errors=of_clusters)
        spread, moments = self._point_spread, None
        if isinstance(spread, WeightedPointSpread):
            errors, moments = spread.errors(), spread.moments()
        else:
            errors = None if spread is None else spread.errors(self.grouping.sizes)
        if errors is not None:
            errors *= factors
        if moments is not None:
            moments = moments * self._pair_factors()
        if self._reduction is not None:
            return self._reduction.with_errors(draws, errors, weight_moments=moments)
        return replace(draws, point_errors=errors, weight_moments=moments)

    def is_settled(self) -> bool:
        """Return whether the order of the strongest pairs is settled, so that no further draws are needed.

        It is looked at after every tenth draw from the twentieth on, once the number of groups is decided.
        """
        if self._tree is not None or self._next_look is None or self.n_draws < self._next_look:
            return False
        while self._next_look <= self.n_draws:
            self._next_look += _DRAWS_BETWEEN_LOOKS
        moments = self._strongest_moments() if self.moments is not None else self._strongest_draws()
        self.settled = order_is_settled(*moments)
        return self.settled

    def _strongest_moments(self) -> tuple[Floats, Floats]:
        """Return the mean scores of the strongest pairs, and the errors of differences, as if they were independent."""
        assert self.moments is not None
        geh_moments = self.moments.geh
        strongest = np.argsort(-geh_moments.mean, kind="stable")[: _SETTLED_PAIRS + 1]
        errors = geh_moments.std[strongest] / np.sqrt(self.n_draws)
        return geh_moments.mean[strongest], np.hypot(errors[1:], errors[:-1])

    def _strongest_draws(self) -> tuple[Floats, Floats]:
        """Return the mean scores of the strongest pairs, and the errors of the differences of neighbours."""
        n_points, factors = len(self.grouping.labels), np.abs(self._pair_factors())
        # Draw by draw, as all draws of all pairs may be large.
        total = geh(self._signed[0], n_points)
        for signed in self._signed[1:]:
            total = total + geh(signed, n_points)
        mean = total * factors / self.n_draws
        if self._contrasts is not None:
            mean = self._contrasts.by_pair(mean)
        strongest = np.argsort(-mean, kind="stable")[: _SETTLED_PAIRS + 1]
        if self._contrasts is not None:
            of_pairs = [self._contrasts.by_pair(geh(signed, n_points) * factors) for signed in self._signed]
            draws = np.stack(of_pairs)[:, strongest]
        else:
            draws = np.stack([geh(signed[:, strongest], n_points) for signed in self._signed])
            draws = draws * (factors if np.ndim(factors) == 0 else np.asarray(factors)[strongest])
        return mean[strongest], np.asarray(np.diff(draws, axis=1).std(axis=0, ddof=1) / np.sqrt(self.n_draws))

    def spread(self) -> tuple[float, float]:
        """Return the largest mean absolute interaction, and its largest difference between draws."""
        if self.moments is not None:
            return float(self.moments.eah.mean.max()), float(self.moments.eah.squares.max())
        first, *later = self._absolute
        largest = max(float(absolute.max()) for absolute in self._absolute)
        return largest, max((float(np.abs(absolute - first).max()) for absolute in later), default=0.0)

    def _take_means(self, count: int) -> Draws:
        """Remove the sums of the first ``count`` draws, and return their means over the points of each group."""
        pair_factors = self._pair_factors()
        sizes, of_units = (np.maximum(part, part <= 0) for part in (self.grouping.weight_sums, self.grouping.unit_sums))
        sizes, of_units = sizes.reshape(len(sizes), -1), of_units.reshape(len(sizes), -1)
        # All in place: for thousands of units each array is a large one.
        signed, absolute = _take_out(self._signed, count), _take_out(self._absolute, count)
        signed /= sizes
        if not isinstance(pair_factors, float):
            signed *= pair_factors
            absolute *= np.abs(pair_factors)
        slopes = _take_out(self._slopes, count) / of_units if self._slopes else None
        if self._contrasts is not None and self._reduction is None:
            # Where only moments are kept, the first draw decides on the signs.
            first = Draws(signed, absolute, None, slopes)
            self._reduction = PairReduction(self._contrasts, first, self.grouping.weight_sums)
        if slopes is not None and self._reduction is not None:
            slopes = self._reduction.main_effects(slopes)
        if slopes is not None:
            slopes = slopes * self._factors
        noise = _take_out(self._variance, count) if self._variance else None
        if noise is not None:
            np.sqrt(noise, out=noise)
            noise /= sizes
            noise *= np.abs(pair_factors)
        if self._sampled:
            # EAH estimated from a sample of the points may fall below GEH, which bounds it.
            shares = self.grouping.weight_sums / len(self.grouping.labels)
            for start in range(0, absolute.shape[1], _PAIRS_AT_ONCE):
                block = absolute[:, start : start + _PAIRS_AT_ONCE]
                means = np.abs(signed[:, :, start : start + _PAIRS_AT_ONCE])
                if noise is not None:
                    means = np.sqrt(np.maximum(means**2 - noise[:, :, start : start + _PAIRS_AT_ONCE] ** 2, 0))
                bound = np.einsum("kmp,m->kp", means, shares)
                np.maximum(block, bound, out=block)
        draws = Draws(signed, absolute, noise, slopes)
        return draws if self._reduction is None else self._reduction.draws(draws)


def _take_out(arrays: list[Floats], count: int) -> Floats:
    """Take the first ``count`` arrays out of a list, as one array."""
    first = arrays[:count]
    del arrays[:count]
    return first[0][None] if count == 1 else np.stack(first)
