"""Warnings about columns of a data frame that are not numbers."""

from __future__ import annotations

from geh_explain.run.plan import RunPlan
from geh_explain.units.categorical import Categorical
from geh_explain.units.unit_lookup import list_names


def fixed_columns_warning(plan: RunPlan) -> str | None:
    """Warn that columns that are not numbers are no units; None where there are none."""
    frame, units = plan.cut.frame, plan.cut.units
    if frame is None or (isinstance(units, Categorical) and not units.rest):
        return None
    categories = units.category_columns if isinstance(units, Categorical) else set()
    fixed = tuple(place for place in frame.coded if place not in categories)
    if not fixed:
        return None
    way_out = "units=Categorical({...}) takes them as categories"
    if not isinstance(units, Categorical):
        way_out += "; units=Subset([...]) with their names lets them jump between their values"
    return (
        f"units: the columns {list_names(frame.names(fixed))} are not numeric and stay as they are in each row, "
        f"so that their interactions are not measured. {way_out}."
    )
