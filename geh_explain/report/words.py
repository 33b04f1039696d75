"""A result in words: what was explained, how sure it is, what came out, and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geh_explain._validation import check_level

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.results.interactions import Interactions

#: How many of the strongest pairs are told in sentences.
_TOLD = 3


def sentences(result: Interactions, level: float = 0.95) -> list[str]:
    """Return the result in a few sentences."""
    check_level(level)
    table = result.table(level=level)
    told = [_explained(result), _posterior(result)]
    if result.geh.count > 1:
        significant = int(table["significant"].sum())
        told.append(f"{_count(significant, 'pair')} of {len(table):,} {_be(significant)} significant at {level:.0%}.")
    strongest = [_pair(result, row) for _, row in table.head(_TOLD).iterrows()]
    return [*told, f"The strongest {_be(len(strongest))} {_listed(strongest)}."]


def _explained(result: Interactions) -> str:
    settings, regions = result.settings, len(result.group_names)
    of = f"of {settings['place']} " if "place" in settings else ""
    return (
        f"{_count(len(result.names), 'unit')} {of}were explained at {_count(len(result.labels), 'point')}, which make "
        f"up {_count(regions, 'region')}."
    )


def _posterior(result: Interactions) -> str:
    if result.geh.count < 2:
        return "The scores are a point estimate, without intervals."
    return f"How sure the scores are comes from {result.geh.count:,} draws of {result.settings.get('posterior', 'W')}."


def _pair(result: Interactions, row: pd.Series) -> str:
    interval = "" if result.geh.count < 2 else f", between {row['low']:.3g} and {row['high']:.3g}"
    return f"{row['unit_i']} and {row['unit_j']} (GEH {row['mean']:.3g}{interval}; {_signs(result, row)})"


def _signs(result: Interactions, row: pd.Series) -> str:
    """Say in how many regions the effect is positive, and in how many negative."""
    means = result.regions(row["unit_i"], row["unit_j"])["mean"]
    positive, negative = int((means > 0).sum()), int((means < 0).sum())
    if not positive and not negative:
        return "no effect"
    if not positive or not negative:
        return f"{'positive' if positive else 'negative'} in all regions" if len(means) > 1 else _one_sign(positive)
    return f"positive in {positive} of {len(means)} regions, negative in {negative}"


def _one_sign(positive: int) -> str:
    return "positive" if positive else "negative"


def how_to_read(result: Interactions, level: float = 0.95) -> list[str]:
    """Return what a reader has to know, as paragraphs."""
    told = [
        "Two units interact if what one of them does depends on the other: the score is the second derivative of the "
        "output by both, which is 0 where effects just add up. GEH averages it within each region of the data and "
        "takes the mean size over regions; AEH averages over all points first, so that signs cancel; EAH averages "
        "sizes point by point, so that nothing cancels. AEH is never above GEH, and GEH never above EAH.",
        "A region's effect is positive where both units together do more than the sum of what each does alone.",
    ]
    if result.geh.count > 1:
        told.append(
            f"Intervals hold {level:.0%} of the posterior (thick: 50 %). A pair is called significant if its interval "
            "excludes 0. Scores are sizes and therefore never negative, so that this rule is generous; the p-value of "
            "the sign rule asks whether the signed effect of some region is further from 0 than the draws allow."
        )
    if result.settings.get("scale") is None:
        told.append(
            "Scores are in units of the output per unit of both features; features with small ranges have large "
            "scores. scale='std' makes pairs comparable."
        )
    else:
        told.append("Scores are multiplied by the scale of both units, so that pairs are comparable.")
    return told


def settings_in_words(result: Interactions) -> list[tuple[str, str]]:
    """Return the settings that are known, in words."""
    return [
        (name.replace("_", " "), str(value))
        for name, value in result.settings.items()
        if value is not None and name != "warnings"
    ]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
