"""Warnings about columns of a data frame that are not numbers."""

from __future__ import annotations

from geh_explain.run.plan import RunPlan
from geh_explain.units.unit_lookup import list_names


def fixed_columns_warning(plan: RunPlan) -> str | None:
    """Warn that columns that are not numbers are no units; None where there are none."""
    frame = plan.cut.frame
    if frame is None or not frame.coded:
        return None
    return (
        f"units: the columns {list_names(frame.names(frame.coded))} are not numeric and stay as they are in each row, "
        "so that their interactions are not measured. units=Subset([...]) with their names lets them jump between "
        "their values."
    )
