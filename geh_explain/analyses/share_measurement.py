"""Measurement of the share of interactions, for independent units and for the rows as they are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.analyses.share import InteractionShare, ShareEstimate
from geh_explain.analyses.share_design import ShareDesign, ShareRequest, is_constant, leave_out_constant
from geh_explain.errors import GEHValueError, warn
from geh_explain.statistics.additive import (
    LADDER,
    MAX_INDICATORS,
    AdditiveDegrees,
    additive_basis,
    cross_fitted,
    product_columns,
    weigh_rows,
)
from geh_explain.statistics.slopes import orthonormal
from geh_explain.statistics.variance_shares import PickFreezePoints, draw_points, ratios_with_errors, sums_by_block

#: Comparisons of the first round, at least and at most, and rows of a small network that all of its draws evaluate if
#: that allows them; and rows that are evaluated in all rounds at most, where the user does not choose.
MIN_COMPARISONS = 128
_MAX_COMPARISONS = 1024
_FIRST_EVALUATIONS = 500_000
_EVALUATIONS = 2_000_000
#: Rounds end where twice the comparisons lower the error by less than this factor: the rows themselves are too few.
_MIN_GAIN = 0.9
#: Rounds also end where the half-width over rows is this part of that over draws, beside which it does not count.
_DRAWS_SHARE = 0.25
#: Level of the interval whose half-width is compared with the precision.
_LEVEL = 0.95
#: Additive functions are fitted to all folds of blocks but one.
_FOLDS = 5
#: Columns of an additive function per row that it is fitted to, at most.
_MAX_COLUMNS = 0.2
#: Degrees of both factors of products of two units that are tried.
_PRODUCT_DEGREES = (1, 2, 3)


def measure_permuted(design: ShareDesign, request: ShareRequest) -> InteractionShare:
    """Measure the share of interactions for units that are independent, by pick-freeze designs.

    See :mod:`geh_explain.statistics.variance_shares`. Rounds of comparisons, each as large as all before it, are
    evaluated in all draws until the interval over rows is narrow enough.
    """
    n_units, n_pairs = design.n_units, len(request.pairs)
    if design.weights is None and min(map(len, design.blocks)) <= n_units:
        warn(
            f"share: {len(design.rows)} rows are few for {n_units} units, whose values should come from different "
            "rows; give more rows, or fewer units."
        )
    rounds = _Rounds(design, request)
    while rounds.next_size() and not rounds.interrupted:
        rounds.run()
    ratios = rounds.estimate()
    ends = np.cumsum([0, 1, n_units, 1, n_units, 1, n_pairs])
    overall, main, rest, units, _, pairs = (ratios.part(*ends[k : k + 2]) for k in range(6))
    return InteractionShare(
        names=request.names,
        pair_names=[(request.names[i], request.names[j]) for i, j in request.pairs],
        background="permuted",
        all_interactions=overall,
        of_pairs=pairs,
        of_units=units,
        main_effects=main,
        of_rest=rest,
        n_rows=len(design.rows),
        evaluations=rounds.evaluations,
    )


class _Rounds:
    """Sums over blocks of all rounds so far, for each draw."""

    def __init__(self, design: ShareDesign, request: ShareRequest) -> None:
        self._design = design
        self._request = request
        self._sums: list[Floats] = []
        self._constant: list[bool] = []
        self._per_block = 0
        self._error = np.inf
        self._done = False
        self.evaluations = 0
        self.interrupted = False

    @property
    def _cost(self) -> int:
        """Rows that one comparison evaluates in all draws."""
        n_draws = len(self._sums) or self._design.options.draws
        return 2 * (2 + self._design.n_units + len(self._request.pairs)) * n_draws

    def next_size(self) -> int:
        """Return the number of comparisons per block of the next round; 0 if none is needed."""
        n_blocks = len(self._design.blocks)
        if not self._per_block:
            wanted = min(self._request.evaluations or _FIRST_EVALUATIONS, _FIRST_EVALUATIONS)
            affordable = int(wanted / (self._cost * self._design.row_cost))
            return -(-max(MIN_COMPARISONS, min(_MAX_COMPARISONS, affordable)) // n_blocks)
        limit = self._request.evaluations or _EVALUATIONS / self._design.row_cost
        return 0 if self._done or 2 * self.evaluations > limit else self._per_block

    def run(self) -> None:
        """Evaluate one more round; Ctrl-C leaves it out, if there is one before it."""
        per_block, design = self.next_size(), self._design
        points = draw_points(design.blocks, design.n_units + 1, per_block, design.generator, design.weights)
        try:
            sums, constant = self._evaluate(points)
        except KeyboardInterrupt:
            if not self._sums:
                raise
            warn("share: interrupted; the interval is that of the points evaluated so far.")
            self.interrupted = True
            return
        self.evaluations += len(points.blocks) * 2 * (2 + design.n_units + len(self._request.pairs)) * len(sums)
        first = not self._sums
        self._sums = sums if first else [old + new for old, new in zip(self._sums, sums, strict=True)]
        self._constant = constant if first else [a and b for a, b in zip(self._constant, constant, strict=True)]
        self._per_block += per_block
        self._look()

    def _look(self) -> None:
        """Decide whether the estimate is precise enough, or does not become more precise."""
        if all(self._constant):
            self._done = True
            return
        estimate = self.estimate(quiet=True)
        error, before = float(estimate.errors[0]), self._error
        self._error = error
        over_draws, over_rows = estimate.half_widths(_LEVEL)
        needed = max(self._request.precision, _DRAWS_SHARE * float(over_draws[0]))
        points = self._per_block * len(self._design.blocks)
        exhausted = points >= 4 * len(self._design.rows) and error > _MIN_GAIN * before
        self._done = float(over_rows[0]) <= needed or exhausted

    def _evaluate(self, points: PickFreezePoints) -> tuple[list[Floats], list[bool]]:
        """Return sums over blocks (G, 1 + E) of a round for each draw, and whether its outputs are constant."""
        design, pairs = self._design, self._request.pairs
        fit = _MainEffects(points, design)
        # As many points in each block, which count by its weight.
        weights = design.block_weights[:, None] / design.block_weights.mean()
        sums, constant = [], []
        bar = design.bar(len(points.blocks) * self._cost)
        with design.draws(bar) as draws:
            for _ in draws:
                values = design.values()
                outputs = design.exchanged_outputs(values, points, pairs, bar.update)
                terms = outputs.terms(fit.residuals(values, outputs.first[0], outputs.second[0]))
                sums.append(weights * sums_by_block(terms, points.blocks, len(design.blocks)))
                largest = float(max(np.abs(outputs.first).max(), np.abs(outputs.second).max()))
                constant.append(is_constant(float(terms[0].mean()), largest, design.cut.dtype))
        if not sums:
            raise GEHValueError("posterior: it gave no draws; a share needs at least one.")
        return sums, constant

    def estimate(self, quiet: bool = False) -> ShareEstimate:
        """Return the shares of all parts, from all rounds; draws with constant outputs are left out."""
        kept = np.flatnonzero(~np.array(self._constant)) if quiet else leave_out_constant(self._constant)
        return _estimate([self._sums[draw] for draw in kept], all(self._constant))


class _MainEffects:
    """Additive functions fitted to the outputs at the points A and B, to subtract them from these.

    They are fitted by folds of blocks, so that they do not depend on the outputs from which they are subtracted. How
    flexible they are is chosen by their errors in the first draw: few points allow rigid ones only.
    """

    def __init__(self, points: PickFreezePoints, design: ShareDesign) -> None:
        self._rows = np.concatenate([points.first, points.second])[:, : design.n_units]
        self._folds = np.tile(points.blocks % _FOLDS, 2)
        self._n_categories = len(design.categories)
        self._allowed = _allowed_degrees(LADDER[:-2], len(self._rows), design)
        self._values: Tensor | None = None
        self._basis: Floats | None = None

    def residuals(self, values: Tensor, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Return the outputs (n,) at A and at B minus the additive function; ``values`` (N, D) are those of rows."""
        outputs = np.concatenate([first, second])
        if self._values is None or not torch.equal(values, self._values):
            numbers = values.double().cpu().numpy()
            of_points = numbers[self._rows, np.arange(numbers.shape[1])]
            bases = [additive_basis(of_points, degrees, self._n_categories) for degrees in self._allowed]
            # A constant is always an additive function.
            tried = [outputs - outputs.mean(), *(self._residuals(basis, outputs) for basis in bases)]
            best = int(np.argmin([(residuals**2).mean() for residuals in tried]))
            self._values, self._basis = values, bases[best - 1] if best else None
            self._allowed = [self._allowed[best - 1]] if best else []
        left = outputs - outputs.mean() if self._basis is None else self._residuals(self._basis, outputs)
        return left[: len(first)], left[len(first) :]

    def _residuals(self, basis: Floats, outputs: Floats) -> Floats:
        """Return the outputs minus their predictions from other folds."""
        return np.asarray(outputs - cross_fitted(basis, outputs[:, None], self._folds)[:, 0])


def _allowed_degrees(ladder: tuple[AdditiveDegrees, ...], n_rows: int, design: ShareDesign) -> list[AdditiveDegrees]:
    """Return the additive functions of ``ladder`` that can be fitted to this number of rows."""
    n_numeric = design.n_units - len(design.categories)
    most = _MAX_COLUMNS * n_rows - 1 - sum(min(count, MAX_INDICATORS) for count in design.categories.n_levels)
    return [degrees for degrees in ladder if n_numeric * degrees.n_columns <= most]


def _estimate(sums: list[Floats], constant: bool) -> ShareEstimate:
    """Return the shares of all parts from sums (G, 1 + E) over blocks; NaN if outputs are constant."""
    stacked = np.stack(sums)
    freedom = stacked.shape[1] - 1
    if constant:
        return ShareEstimate(np.full((1, stacked.shape[2] - 1), np.nan), np.full(stacked.shape[2] - 1, np.nan), freedom)
    return ShareEstimate(*ratios_with_errors(stacked), freedom)


def measure_conditional(design: ShareDesign, request: ShareRequest) -> InteractionShare:
    """Measure the share that the best additive function leaves at the rows as they are, by cross-fitted regression.

    Additive functions of growing flexibility are fitted to the outputs of all folds of rows but one; the one with the
    smallest error in the first draw counts. The share of a pair is what products of its two units explain beside it.
    """
    if not design.units_hold_rows:
        warn(
            "share: rows hold more than the units, such as other numbers of a patch or another argument of the model, "
            "and background='conditional' counts all that the units do not explain as interaction. "
            "background='permuted' keeps it apart."
        )
    labels = design.block_labels
    used, blocks = np.flatnonzero(labels >= 0), labels[labels >= 0]
    fits: _ConditionalFits | None = None
    sums, constant, kept_values = [], [], None
    bar = design.bar(len(design.rows) * design.options.draws)
    with design.draws(bar) as draws:
        for _ in draws:
            outputs, values = design.row_outputs()[used], design.values()
            if fits is None or kept_values is None or not torch.equal(values, kept_values):
                kept_values = values
                fits = _ConditionalFits(design, _UsedRows(values, used, blocks), request.pairs, outputs, fits)
            terms = fits.terms(outputs)
            constant.append(is_constant(float(terms[0].mean()), float(np.abs(outputs).max()), design.cut.dtype))
            sums.append(sums_by_block(terms, blocks, len(design.blocks)))
            bar.update(len(outputs))
    if not sums:
        raise GEHValueError("posterior: it gave no draws; a share needs at least one.")
    ratios = _estimate([sums[draw] for draw in leave_out_constant(constant)], all(constant))
    return InteractionShare(
        names=request.names,
        pair_names=[(request.names[i], request.names[j]) for i, j in request.pairs],
        background="conditional",
        all_interactions=ratios.part(0, 1),
        of_pairs=ratios.part(1, 1 + len(request.pairs)),
        of_units=None,
        main_effects=None,
        of_rest=None,
        n_rows=len(used),
        evaluations=len(design.rows) * len(sums),
    )


class _UsedRows:
    """Values (n, D) of the units in the rows that are used, and the folds (n,) of these."""

    def __init__(self, values: Tensor, used: Ints, blocks: Ints) -> None:
        self.values = values.double().cpu().numpy()[used]
        self.used = used
        self.folds = blocks % _FOLDS


class _ConditionalFits:
    """Bases of additive functions, and of these with products of each pair, chosen by the errors of one draw.

    Rows are multiplied by the roots of their case weights. ``like`` are the fits of an earlier draw, whose choices are
    repeated.
    """

    def __init__(
        self, design: ShareDesign, rows: _UsedRows, pairs: Ints, outputs: Floats, like: _ConditionalFits | None
    ) -> None:
        self._folds = rows.folds
        self._weights = None if design.weights is None else design.weights[rows.used]
        self._n_categories = len(design.categories)
        self.degrees: AdditiveDegrees
        self.product_degrees: list[int]
        values = rows.values
        if like is not None:
            self.degrees, self.product_degrees = like.degrees, like.product_degrees
            self._basis = self._additive(values, self.degrees)
            self._with_pairs = [
                self._beside(values, pair, degree) for pair, degree in zip(pairs, self.product_degrees, strict=True)
            ]
            return
        allowed = _allowed_degrees(LADDER, len(values), design)
        if not allowed:
            raise GEHValueError(
                f"background='conditional': {len(values)} rows are too few to fit functions of {design.n_units} units; "
                "give more rows, or use background='permuted'."
            )
        bases = [self._additive(values, degrees) for degrees in allowed]
        best = int(np.argmin([self._error(basis, outputs) for basis in bases]))
        self.degrees, self._basis = allowed[best], bases[best]
        self.product_degrees, self._with_pairs = [], []
        for pair in pairs:
            tried = [self._beside(values, pair, degree) for degree in _PRODUCT_DEGREES]
            place = int(np.argmin([self._error(basis, outputs) for basis in tried]))
            self.product_degrees.append(_PRODUCT_DEGREES[place])
            self._with_pairs.append(tried[place])

    def _additive(self, values: Floats, degrees: AdditiveDegrees) -> Floats:
        """Return the basis (n, c) of additive functions."""
        return additive_basis(values, degrees, self._n_categories, self._weights)

    def _beside(self, values: Floats, pair: Ints, degree: int) -> Floats:
        """Return the additive basis with products of a pair's units, orthonormal."""
        i, j = pair.tolist()
        kinds = i < self._n_categories, j < self._n_categories
        # So few levels that there are not too many products.
        most = _MAX_COLUMNS * len(values)
        max_levels = min(MAX_INDICATORS, int(most**0.5 if all(kinds) else most / (2 * degree)))
        products = product_columns(values[:, i], values[:, j], degree, kinds, max_levels)
        beside = orthonormal(weigh_rows(products, self._weights), beside=self._basis)
        return np.concatenate([self._basis, beside], axis=1)

    def _squares(self, basis: Floats, outputs: Floats) -> Floats:
        """Return the squared errors (n,) of predictions from other folds, times the case weights."""
        weighted = weigh_rows(outputs, self._weights)
        return np.asarray((weighted - cross_fitted(basis, weighted[:, None], self._folds)[:, 0]) ** 2)

    def _error(self, basis: Floats, outputs: Floats) -> float:
        return float(self._squares(basis, outputs).mean())

    def terms(self, outputs: Floats) -> Floats:
        """Return what is averaged over rows (2 + P, n): variance, remainder, and what each pair explains of it."""
        remainder = self._squares(self._basis, outputs)
        pairs = [remainder - self._squares(basis, outputs) for basis in self._with_pairs]
        deviations = weigh_rows(outputs - np.average(outputs, weights=self._weights), self._weights)
        return np.stack([deviations**2, remainder, *pairs])
