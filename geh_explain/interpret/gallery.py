"""Gallery: pairs of hidden units with the inputs that excite them, the result of ``explainer.interpret``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.errors import GEHValueError
from geh_explain.interpret.ascent.maximisation import Maximised
from geh_explain.interpret.exemplar_set import Exemplars
from geh_explain.interpret.pair_selection import ScoredPair
from geh_explain.plots.exemplars import colour_limits, first_input, to_rgb
from geh_explain.plots.gallery import draw_gallery

if TYPE_CHECKING:
    import pandas as pd

#: Pairs listed in the repr of a gallery.
_MAX_LISTED = 3


@dataclass(frozen=True, repr=False)
class PairView(ScoredPair):
    """One pair of units: its score, its signed effect by group, and the inputs that excite its units.

    Attributes
    ----------
    units, numbers
        Names and indices of the two units.
    mean, low, high
        Score of the pair and its 95 % interval, as in ``result.table()``; NaN where its uncertainty is unknown.
    regions
        Signed effect in each group of points, as returned by ``result.regions(i, j)``.
    exemplars
        Exemplars of the two units, one row each.
    both
        Exemplars of both units together, one row; scores are smooth minima of standardised activations.
    ascent
        Inputs by gradient ascent for the first unit, the second and both; None if it was not requested, or if the
        inputs are not one floating-point tensor.
    """

    exemplars: Exemplars
    both: Exemplars
    ascent: Maximised | None


@dataclass(frozen=True, repr=False)
class Gallery:
    """Pairs of hidden units with the inputs that excite them.

    Attributes
    ----------
    pairs
        The pairs, strongest first.
    measure
        Measure that ranks them: "geh", "aeh", "eah" or "supported", whose scores are GEH.
    output_std
        Standard deviation of the explained output over the points, with which scores compare under ``scale="std"``;
        None if it is not recorded, or scores have another unit.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2), torch.nn.Tanh())
    >>> explainer, x = geh.GEHExplainer(net, "1", posterior=geh.posterior.PointEstimate()), torch.randn(50, 2)
    >>> result = explainer.explain(x, target=0, groups=1, progress=False)
    >>> gallery = explainer.interpret(result, x, pairs=1, ascent=False, progress=False)
    >>> len(gallery.pairs), list(gallery.readings(["a"] * 50)["reads_i"])
    (1, ['a, 9 of 9'])
    """

    pairs: list[PairView]
    measure: str
    output_std: float | None = None

    def readings(self, labels: Sequence[Any] | Tensor | NDArray[Any]) -> pd.DataFrame:
        """Return the majority label of each unit's exemplars, one row per pair.

        Parameters
        ----------
        labels
            One label per candidate.

        Returns
        -------
        pandas.DataFrame
            Columns unit_i, unit_j (names), reads_i, reads_j (readings such as "7, 8 of 9"), mean, low and high (score).
        """
        # Importing the package must not import pandas.
        import pandas as pd

        rows = []
        for pair in self.pairs:
            first, second = pair.exemplars.reading(labels)
            rows.append([*pair.units, str(first), str(second), pair.mean, pair.low, pair.high])
        return pd.DataFrame(rows, columns=["unit_i", "unit_j", "reads_i", "reads_j", "mean", "low", "high"])

    def images(self) -> dict[str, NDArray[np.float64]]:
        """Return the strongest exemplar of each unit as an image (H, W, 3), by unit name.

        ``result.plot.network(images=gallery.images())`` draws them as thumbnails.

        Raises
        ------
        GEHValueError
            If the exemplars are not images.
        """
        thumbnails: dict[str, NDArray[np.float64]] = {}
        for pair in self.pairs:
            inputs = first_input(pair.exemplars.inputs)
            if inputs[0, 0].ndim not in (2, 3):
                raise GEHValueError(
                    f"gallery: its inputs have shape {tuple(inputs[0, 0].shape)}; thumbnails need images (H, W) or "
                    "(C, H, W)."
                )
            limits = colour_limits(inputs.flatten(0, 1))
            thumbnails.update((name, to_rgb(inputs[row, 0].cpu(), limits)) for row, name in enumerate(pair.units))
        return thumbnails

    def plot(self, labels: Sequence[Any] | Tensor | NDArray[Any] | None = None) -> Any:
        """Draw all pairs, one row each, and return the figure.

        Parameters
        ----------
        labels
            One label per candidate, or None. With labels, the titles include the units' readings.
        """
        return draw_gallery(self, labels)

    def __repr__(self) -> str:
        listed = ", ".join(repr(pair) for pair in self.pairs[:_MAX_LISTED])
        rest = ", ..." if len(self.pairs) > _MAX_LISTED else ""
        return f"Gallery({len(self.pairs)} pairs by {self.measure}: {listed}{rest})"
