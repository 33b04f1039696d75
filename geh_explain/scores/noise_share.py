"""How much of estimated interactions is noise of the estimates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.scores.draws import Draws


@dataclass(frozen=True)
class NoiseShare:
    """Squared norms over pairs and groups, of shares n_m / N of the groups' means; sums over draws.

    Attributes
    ----------
    noise
        That of the standard errors.
    signal
        That of the interactions: the squared norm of the estimates exceeds it by ``noise``. It may be negative.
    """

    noise: float = 0.0
    signal: float = 0.0

    @classmethod
    def of(cls, draws: Draws, sizes: Floats | NDArray[np.int64]) -> NoiseShare:
        """Return that of draws of groups with ``sizes`` (M,); 0 where the engine has no noise.

        >>> draws = Draws(np.array([[[3.0, 1.0]]]), np.ones((1, 2)), noise=np.array([[[1.0, 1.0]]]))
        >>> NoiseShare.of(draws, np.array([7]))
        NoiseShare(noise=2.0, signal=8.0)
        """
        if draws.noise is None:
            return cls()
        shares = sizes / sizes.sum()
        # Group by group: for thousands of units each array is a large one.
        squares = [
            (float(share**2 * np.vdot(noise, noise)), float(share**2 * np.vdot(signed, signed)))
            for of_noise, of_signed in zip(draws.noise, draws.signed, strict=True)
            for share, noise, signed in zip(shares, of_noise, of_signed, strict=True)
        ]
        noise, total = np.sum(squares, axis=0)
        return cls(float(noise), float(total - noise))

    def __add__(self, other: NoiseShare) -> NoiseShare:
        return NoiseShare(self.noise + other.noise, self.signal + other.signal)
