"""Differences of the means of two results: the columns of a comparison, in blocks of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_level, check_rate
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups.alignment import GroupAlignment
from geh_explain.results.level_matching import CommonContrasts
from geh_explain.results.rules import SOURCES
from geh_explain.scores.draws import MEASURES
from geh_explain.scores.group_unions import DrawnMeans, merged_draws, merged_means, merged_scores, pair_draws
from geh_explain.statistics.differences import MeanDifference

#: Numbers of one array, draws or covariances of some pairs, that are held at a time.
_MAX_NUMBERS = 2**22


@dataclass(frozen=True)
class ComparisonRequest:
    """The arguments of ``result.compare``, checked."""

    level: float
    fdr: float
    measure: str | None
    source: str
    labels: tuple[str, str]

    @classmethod
    def of(
        cls, level: float, fdr: float, measure: str | None, source: str | None, labels: Sequence[str]
    ) -> ComparisonRequest:
        """Return the arguments, or raise if one of them is wrong."""
        check_level(level)
        if measure not in (None, "groups", "mean", *MEASURES):
            raise GEHValueError(
                f"measure={measure!r} is unknown; use 'groups', 'mean', 'geh', 'aeh' or 'eah', or None."
            )
        if source not in (None, *SOURCES):
            raise GEHValueError(f"source={source!r} is unknown; use 'both', 'draws' or 'points', or None.")
        if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != 2:
            raise GEHTypeError(f"labels={labels!r}: give two names, such as ('before', 'after').")
        return cls(level, check_rate(fdr), measure, source or "both", (str(labels[0]), str(labels[1])))


@dataclass(frozen=True)
class GroupRequest:
    """What is compared, and in which groups.

    Attributes
    ----------
    request
        The checked arguments of the user.
    measure
        ``"groups"`` or ``"mean"``.
    alignment
        The groups that both results have in common.
    contrasts
        Differences between levels that both results have; None without categories.
    """

    request: ComparisonRequest
    measure: str
    alignment: GroupAlignment
    contrasts: CommonContrasts | None = None


@dataclass(frozen=True)
class Places:
    """Where two results hold what is compared.

    Attributes
    ----------
    first, second
        Places (P,) of the pairs, or of the differences between levels, in each result.
    signs
        Factors (P,) of the second result: -1 where its levels are in the opposite order.
    """

    first: Ints
    second: Ints
    signs: Floats

    def blocks(self, step: int) -> Iterator[Places]:
        """Yield ``step`` of them at a time."""
        for start in range(0, len(self.first), step):
            part = slice(start, start + step)
            yield Places(self.first[part], self.second[part], self.signs[part])


@dataclass
class Columns:
    """Arrays of the comparison, in blocks of pairs."""

    blocks: dict[str, list[Floats]] = field(default_factory=dict)

    def add(self, **arrays: Floats) -> None:
        for name, array in arrays.items():
            self.blocks.setdefault(name, []).append(array)

    def __getitem__(self, name: str) -> Floats:
        return np.concatenate(self.blocks[name], axis=-1)

    def with_categories(self, of_levels: Columns, common: CommonContrasts, measure: str) -> Columns:
        """Return the arrays with the pairs that have a category replaced, from those of their contrasts.

        Differences and their intervals are weighted means, p-values are combined by Simes' rule. If a pair has several
        contrasts, they have no common sign: differences are absolute ones, and the means of groups are sums of the
        contrasts, each with the sign of its mean over all points in both results.
        """
        contrasts, joined = common.contrasts, Columns()
        arrays = {name: of_levels[name] for name in of_levels.blocks}
        several = ~contrasts.single
        # Ends of intervals below 0 count in means: contrasts vary in both directions.
        sizes = several if measure == "mean" else np.ones_like(several)
        for name, size in (("difference", "size"), ("low", "size_low"), ("high", "size_high")):
            arrays[name] = np.where(sizes, arrays[size], arrays[name])
        for name in ("score_a", "score_b"):
            arrays[name] = np.where(several, np.abs(arrays[name]), arrays[name])
        signs = np.where(several & (arrays["total"] < 0), -1.0, 1.0)
        for name, values in arrays.items():
            if name in ("p_value", "group_p"):
                of_pairs = common.p_values(values)
            else:
                of_pairs = contrasts.average(values * signs if name in ("mean_a", "mean_b") else values)
            if name == "low":
                of_pairs = np.where(sizes[contrasts.starts], np.maximum(of_pairs, 0.0), of_pairs)
            whole = self[name].copy()
            whole[..., contrasts.category_pairs] = of_pairs
            joined.add(**{name: whole})
        return joined


def difference_columns(
    a: DrawnMeans, b: DrawnMeans, places: Places, asked: GroupRequest, source: str, paired: bool
) -> Columns:
    """Return means, differences, intervals and p-values of the pairs, or of the contrasts, of two results.

    Parameters
    ----------
    a, b
        The results, or their differences between levels.
    places
        Where both hold what is compared.
    asked, source
        What is compared in which groups, and which errors count.
    paired
        Draw k of both results is the same function.
    """
    columns, alignment, level = Columns(), asked.alignment, asked.request.level
    groups = max(len(alignment.first), len(alignment.second))
    draws = max(result.scores("geh").n_draws for result in (a, b))
    for part in places.blocks(max(1, _MAX_NUMBERS // (groups * max(groups, draws)))):
        first = merged_means(a, alignment.first, part.first, source)
        second = merged_means(b, alignment.second, part.second, source)
        second = replace(second, mean=second.mean * part.signs)
        if paired:
            of_a = merged_draws(a, alignment.first, part.first)
            of_b = merged_draws(b, alignment.second, part.second) * part.signs
            first, second = pair_draws((first, second), of_a, of_b)
        difference = MeanDifference(first, second, alignment.weights)
        half, (low, high) = difference.half_widths(level), difference.size_interval(level)
        columns.add(size=difference.size, size_low=low, size_high=high)
        if asked.measure == "mean":
            columns.add(score_a=first.mean[0], score_b=second.mean[0], difference=difference.delta[0])
            columns.add(low=(difference.delta - half)[0], high=(difference.delta + half)[0])
        else:
            columns.add(score_a=group_scores(a, alignment.first, part.first))
            columns.add(score_b=group_scores(b, alignment.second, part.second))
            columns.add(difference=difference.size, low=np.maximum(low, 0.0), high=high)
        columns.add(p_value=difference.p_value, half=half, group_p=difference.group_p_values)
        columns.add(mean_a=first.mean, mean_b=second.mean, total=alignment.weights @ (first.mean + second.mean))
    return columns


def group_scores(result: DrawnMeans, groups: Ints, pairs: Ints) -> Floats:
    """Return the mean GEH (p,) of some pairs over the common groups; that of the result if these are its groups."""
    kept = groups[groups >= 0]
    if len(np.unique(kept)) == len(kept):
        return result.scores("geh").pair_mean[pairs]
    return merged_scores(result, groups, pairs)
