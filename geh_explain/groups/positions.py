"""Positions of the points, from which groups are found: their inputs, or their activations at the layer."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.model.cut import Cut
from geh_explain.units.categorical import Categorical
from geh_explain.units.channels import Channels

#: Groups are found from a sample of at most this many points; all points are assigned to them.
MAX_POINTS = 20_000
#: Bytes of that sample, where memory is plentiful.
MAX_SAMPLE_BYTES = 2**30
#: Bytes of that sample, however little memory there is.
MIN_SAMPLE_BYTES = 2**25
#: Bytes of that sample with more columns than the second number: splitting it takes about four copies.
_MAX_WIDE_BYTES, _WIDE_COLUMNS = 2**28, 20_000


def positions_of(cut: Cut, activations: Tensor) -> Floats:
    """Return the positions (n, d) of rows with the given ``activations`` at the cut.

    They are the flattened inputs, or the activations of the layer, with the mean of each channel of feature maps.
    Columns of text in a data frame have no distance, and are left out. Codes of categories, which have no distances,
    are replaced by indicators of their levels.
    """
    if isinstance(cut.units, Categorical):
        return np.asarray(cut.units.positions(activations).numpy())
    if cut.frame is not None and cut.frame.coded and cut.frame.numeric:
        activations = activations[:, cut.frame.numeric]
    if cut.layer is not None and activations.ndim > 2:
        activations = Channels().bind(cut.shape, cut.layout, None).values(activations)
    return np.asarray(activations.flatten(1).double().cpu().numpy())


class PositionSample:
    """All positions, in order, or a uniform sample of them where they are too many.

    Every row gets a random key; the rows with the lowest keys are kept. ``weights`` (N,) are the case weights of all
    rows, None for 1.
    """

    def __init__(self, seed: int, max_bytes: int = MAX_SAMPLE_BYTES, weights: Floats | None = None) -> None:
        self._weights = weights
        self._generator = np.random.default_rng(seed)
        self._max_bytes = max_bytes
        self._max_rows = MAX_POINTS
        self._positions: list[Floats] = []
        self._keys: list[Floats] = []
        self._rows: list[Ints] = []
        self._count = 0
        self._seen = 0

    def add(self, positions: Floats) -> None:
        """Add the positions (n, d) of some rows."""
        self._positions.append(positions)
        self._keys.append(self._generator.random(len(positions)))
        n_columns = positions.shape[1]
        max_bytes = min(self._max_bytes, _MAX_WIDE_BYTES) if n_columns > _WIDE_COLUMNS else self._max_bytes
        self._max_rows = max(2, min(MAX_POINTS, max_bytes // (8 * n_columns)))
        self._rows.append(np.arange(self._seen, self._seen + len(positions)))
        self._count += len(positions)
        self._seen += len(positions)
        if self._count > 2 * self._max_rows:
            self._thin_out()

    def result(self) -> Floats:
        """Return the positions (m, d) that were kept, in the order of the rows."""
        self._thin_out()
        return self._positions[0]

    @property
    def weights(self) -> Floats | None:
        """Case weights (m,) of the rows that were kept, in their order; None for 1."""
        self._thin_out()
        return None if self._weights is None else self._weights[self._rows[0]]

    def _thin_out(self) -> None:
        """Join what was added, and keep the rows with the lowest random keys, at most ``max_rows``."""
        positions, keys = np.concatenate(self._positions), np.concatenate(self._keys)
        rows = np.concatenate(self._rows)
        if len(positions) > self._max_rows:
            lowest = np.sort(np.argpartition(keys, self._max_rows)[: self._max_rows])
            positions, keys, rows = positions[lowest], keys[lowest], rows[lowest]
        self._positions = [positions]
        self._keys = [keys]
        self._rows = [rows]
        self._count = len(positions)
