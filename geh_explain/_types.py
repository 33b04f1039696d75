"""Array types shared by the whole package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Double precision array.
Floats = NDArray[np.float64]
#: Integer array.
Ints = NDArray[np.int64]
#: Boolean array.
Bools = NDArray[np.bool_]
#: Shape of one row, without the batch dimension.
Shape = tuple[int, ...]
