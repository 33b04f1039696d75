"""What fits into the memory of a run: units, draws that measure the spread over points, and cells of clusters."""

from __future__ import annotations

from geh_explain.data.points import Points
from geh_explain.errors import GEHValueError
from geh_explain.groups.clusters import Cells
from geh_explain.model.cut import Cut
from geh_explain.run.columns import Columns
from geh_explain.scores.point_spread import POINT_DRAWS

#: A run takes at least this many numbers per pair.
MIN_COPIES = 24
#: The sums over the cells of one draw may take this part of the memory.
CELL_COPIES = 6


def point_draws(budget: int, n_pairs: int, n_groups: int, merged: bool) -> int:
    """Return how many draws measure the variance over points, within ``budget`` bytes.

    ``merged`` says whether the number of groups is open, so that sums of squares wait for the merge.
    """
    # The rest of a run takes up to 24 numbers per pair, and 8 per pair and group.
    room = budget // (8 * n_pairs) - 24 - 8 * n_groups
    if room < 0:
        return 0
    # A draw that waits takes up to three arrays: sums, squares, and sums over a sample of the points.
    return min(POINT_DRAWS, 1 + room // (3 * n_groups)) if merged else POINT_DRAWS


def cluster_draws(budget: int, n_pairs: int, cells: Cells | None) -> int:
    """Return how many draws measure the variance over clusters, within ``budget`` bytes; 0 without cells."""
    if cells is None:
        return 0
    return max(1, min(POINT_DRAWS, budget // (CELL_COPIES * 8 * n_pairs * len(cells))))


def check_units(cut: Cut, points: Points, columns: Columns, budget: int) -> None:
    """Refuse a single unit, and so many units that not even the means of a few groups fit into memory."""
    pairs = columns.pairs
    if cut.n_units < 2:
        missing = cut.layer is None and points.first.inputs[0].ndim == 1
        raise GEHValueError(
            f"units={cut.units!r} at {cut.place}: there is only 1 unit, and an interaction needs two. "
            + ("Is the batch dimension missing?" if missing else "Choose another layer or other units.")
        )
    if columns.contrasts is not None and 8 * len(columns) * MIN_COPIES > budget:
        raise GEHValueError(
            f"units={cut.units!r}: its pairs have {len(columns):,} differences between levels, which do not fit into "
            f"memory ({budget / 1e9:.1f} GB). Pass Categorical(..., max_levels=10), or some pairs by pairs= or unit=."
        )
    if 8 * len(pairs) * MIN_COPIES > budget:
        raise GEHValueError(
            f"units={cut.units!r} at {cut.place}: {cut.n_units:,} units have {len(pairs):,} pairs, which do not fit "
            f"into memory ({budget / 1e9:.1f} GB). explainer.search(inputs) finds the strongest ones. Or choose fewer: "
            "units=explainer.screen(inputs) finds those that matter, rows=explainer.screen(inputs, keep=50) takes "
            "their pairs with all units; or take Channels() or Patches(size), or a later layer."
        )
