"""How many groups: the rank weighted distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new

if TYPE_CHECKING:
    from geh_explain.groups.number import GroupChoice


def delta(choice: GroupChoice, *, ax: Any = None) -> Any:
    """Draw Delta^2 against the number of groups, with the chosen number marked."""
    ax = axes_or_new(ax, (6, 3.2))
    ax.plot(choice.counts, choice.delta, ".-", color=palette.SURE, linewidth=1)
    ax.axvline(choice.chosen, color=palette.MARK, linestyle="--", label=f"chosen: {choice.chosen}")
    ax.set_xlabel("number of groups M")
    ax.set_ylabel(r"rank weighted distance $\Delta^2_M$")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
