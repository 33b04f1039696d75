"""Measurement of the share of interactions, for independent units and for the rows as they are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.analyses.share import InteractionShare, ShareEstimate
from geh_explain.analyses.share_design import ShareDesign, ShareRequest, is_constant, leave_out_constant
from geh_explain.errors import GEHValueError, warn
from geh_explain.statistics.additive import LADDER, AdditiveDegrees, additive_basis, cross_fitted, product_columns
from geh_explain.statistics.slopes import orthonormal
from geh_explain.statistics.variance_shares import PickFreezePoints, draw_points, ratios_with_errors, sums_by_block

#: Comparisons of the first round, at least and at most, and rows of a small network that all of its draws evaluate if
#: that allows them; and rows that are evaluated in all rounds at most, where the user does not choose.
_FIRST_ROUND = (128, 1024)
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
    if min(map(len, design.blocks)) <= n_units:
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
            smallest, largest = _FIRST_ROUND
            affordable = int(_FIRST_EVALUATIONS / (self._cost * self._design.row_cost))
            return -(-max(smallest, min(largest, affordable)) // n_blocks)
        limit = self._request.evaluations or _EVALUATIONS / self._design.row_cost
        return 0 if self._done or 2 * self.evaluations > limit else self._per_block

    def run(self) -> None:
        """Evaluate one more round; Ctrl-C leaves it out, if there is one before it."""
        per_block, design = self.next_size(), self._design
        points = draw_points(design.blocks, design.n_units + 1, per_block, design.generator)
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
        fit = _MainEffects(points, design.n_units)
        sums, constant = [], []
        bar = design.bar(len(points.blocks) * self._cost)
        with design.draws(bar) as draws:
            for _ in draws:
                values = design.values()
                outputs = design.exchanged_outputs(values, points, pairs, bar.update)
                terms = outputs.terms(fit.residuals(values, outputs.first[0], outputs.second[0]))
                sums.append(sums_by_block(terms, points.blocks, len(design.blocks)))
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

    They are fitted by folds of blocks, so that they do not depend on the outputs from which they are subtracted.
    """

    def __init__(self, points: PickFreezePoints, n_units: int) -> None:
        self._rows = np.concatenate([points.first, points.second])[:, :n_units]
        self._folds = np.tile(points.blocks % _FOLDS, 2)
        self._degrees = _most_flexible(len(self._rows), n_units)
        self._values: Tensor | None = None
        self._basis: Floats = np.zeros((0, 0))

    def residuals(self, values: Tensor, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Return the outputs (n,) at A and at B minus the additive function; ``values`` (N, D) are those of rows."""
        outputs = np.concatenate([first, second])
        if self._degrees is None:
            outputs = outputs - outputs.mean()
        else:
            if self._values is None or not torch.equal(values, self._values):
                numbers = values.double().cpu().numpy()
                self._values = values
                self._basis = additive_basis(numbers[self._rows, np.arange(numbers.shape[1])], self._degrees)
            outputs = outputs - cross_fitted(self._basis, outputs[:, None], self._folds)[:, 0]
        return outputs[: len(first)], outputs[len(first) :]


def _most_flexible(n_rows: int, n_units: int) -> AdditiveDegrees | None:
    """Return the most flexible polynomials that the rows allow; None if there are too few rows for any."""
    allowed = [degrees for degrees in LADDER[:-2] if 1 + n_units * degrees.n_columns <= _MAX_COLUMNS * n_rows]
    return allowed[-1] if allowed else None


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
    labels = design.block_labels
    used, blocks = np.flatnonzero(labels >= 0), labels[labels >= 0]
    fits: _ConditionalFits | None = None
    sums, constant, kept_values = [], [], None
    bar = design.bar(len(design.rows) * design.options.draws)
    with design.draws(bar) as draws:
        for _ in draws:
            outputs, values = design.row_outputs()[used], design.values()
            if fits is None or kept_values is None or not torch.equal(values, kept_values):
                numbers, kept_values = values.double().cpu().numpy()[used], values
                fits = _ConditionalFits(numbers, request.pairs, blocks % _FOLDS, outputs, fits)
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


class _ConditionalFits:
    """Bases of additive functions, and of these with products of each pair, chosen by the errors of one draw.

    ``like`` are those of an earlier draw, whose choices are repeated.
    """

    def __init__(
        self, values: Floats, pairs: Ints, folds: Ints, outputs: Floats, like: _ConditionalFits | None
    ) -> None:
        self._folds = folds
        self.degrees: AdditiveDegrees
        self.product_degrees: list[int]
        n_rows, n_units = values.shape
        if like is not None:
            self.degrees, self.product_degrees = like.degrees, like.product_degrees
            self._basis = additive_basis(values, self.degrees)
            self._with_pairs = [
                self._beside(values, pair, degree) for pair, degree in zip(pairs, self.product_degrees, strict=True)
            ]
            return
        allowed = [degrees for degrees in LADDER if 1 + n_units * degrees.n_columns <= _MAX_COLUMNS * n_rows]
        if not allowed:
            raise GEHValueError(
                f"background='conditional': {n_rows} rows are too few to fit functions of {n_units} units; give more "
                "rows, or use background='permuted'."
            )
        bases = [additive_basis(values, degrees) for degrees in allowed]
        best = int(np.argmin([self._error(basis, outputs) for basis in bases]))
        self.degrees, self._basis = allowed[best], bases[best]
        self.product_degrees, self._with_pairs = [], []
        for pair in pairs:
            tried = [self._beside(values, pair, degree) for degree in _PRODUCT_DEGREES]
            place = int(np.argmin([self._error(basis, outputs) for basis in tried]))
            self.product_degrees.append(_PRODUCT_DEGREES[place])
            self._with_pairs.append(tried[place])

    def _beside(self, values: Floats, pair: Ints, degree: int) -> Floats:
        """Return the additive basis with products of a pair's units, orthonormal."""
        products = product_columns(values[:, pair[0]], values[:, pair[1]], degree)
        return np.concatenate([self._basis, orthonormal(products, beside=self._basis)], axis=1)

    def _squares(self, basis: Floats, outputs: Floats) -> Floats:
        """Return the squared errors (n,) of predictions from other folds."""
        return np.asarray((outputs - cross_fitted(basis, outputs[:, None], self._folds)[:, 0]) ** 2)

    def _error(self, basis: Floats, outputs: Floats) -> float:
        return float(self._squares(basis, outputs).mean())

    def terms(self, outputs: Floats) -> Floats:
        """Return what is averaged over rows (2 + P, n): variance, remainder, and what each pair explains of it."""
        remainder = self._squares(self._basis, outputs)
        pairs = [remainder - self._squares(basis, outputs) for basis in self._with_pairs]
        return np.stack([(outputs - outputs.mean()) ** 2, remainder, *pairs])
