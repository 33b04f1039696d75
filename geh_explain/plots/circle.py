"""Units on a circle, with names that read outwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import LEADING, SMALLEST, points

#: In points: the largest and the smallest diameter of a unit, the side of a picture, gaps, and the size of letters.
_LARGEST, _LEAST, _PICTURE, _GAP, _LETTERS = 22.0, 5.0, 40.0, 4.0, 10.0
#: The least share of the axes that is left to the circle where names are long.
_CIRCLE = 0.35
#: What a layout engine will take away from the axes, in points, for title and legend.
_TAKEN = 50.0


@dataclass(frozen=True)
class Circle:
    """Places on a circle of radius 1, the first on top, and what has room there.

    Sizes are in points: ``radius`` of the circle, ``room`` for a unit, ``side`` of its picture (0 for none), and
    ``letters`` of its name.
    """

    count: int
    radius: float
    room: float
    side: float
    letters: float

    @classmethod
    def around(cls, ax: Any, names: list[str], pictured: bool) -> Circle:
        """Fit the largest circle into axes around which names have room, and set the limits."""
        ax.set_aspect("equal")
        width, height = points(ax)
        half, count = min(width, height - _TAKEN * bool(ax.figure.get_layout_engine())) / 2, len(names)
        apart = 2 * np.pi * 0.6 * half / count
        found = cls(count, 0.0, min(_LARGEST, 0.8 * apart), min(_PICTURE, apart) if pictured else 0.0, SMALLEST)
        longest = max(_length(line) for name in names for line in name.split("\n"))
        tallest = max(name.count("\n") + 1 for name in names)
        for letters in np.arange(_LETTERS, SMALLEST - 0.1, -0.5):
            radius = half - found.beyond - letters * longest
            high = 2 * np.pi * (radius + found.beyond) / count
            if radius >= _CIRCLE * half and high >= LEADING * tallest * letters:
                break
        radius = max(radius, _CIRCLE * half)
        ax.set(xlim=(-half / radius, half / radius), ylim=(-half / radius, half / radius), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return cls(count, radius, found.room, found.side, float(letters))

    @property
    def beyond(self) -> float:
        """How far from the circle names start: after the unit, and its picture with the corners that stand out."""
        return self.room / 2 + _GAP + (math.sqrt(2) * self.side + _GAP) * bool(self.side)

    @property
    def angles(self) -> Floats:
        """The angle of every unit, clockwise."""
        return np.asarray(np.pi / 2 - 2 * np.pi * np.arange(self.count) / self.count)

    def places(self, beyond: float = 0.0) -> Floats:
        """Return places (n, 2) so many points outside of the circle."""
        return np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1) * (1 + beyond / self.radius)

    def draw_units(self, ax: Any, sizes: Floats) -> None:
        """Draw discs with areas in proportion to ``sizes`` (n,), if they can be seen."""
        areas = np.maximum(self.room**2 * sizes / (sizes.max() or 1.0), _LEAST**2)
        ax.scatter(*self.places().T, s=areas, c=palette.NONE, edgecolors=palette.LINE, linewidths=1, zorder=2)

    def draw_names(self, ax: Any, names: list[str]) -> None:
        """Write names outwards, those on the left from their end."""
        for name, angle, place in zip(names, np.degrees(self.angles), self.places(self.beyond), strict=True):
            left = place[0] < -1e-9
            ax.text(
                *place,
                name,
                rotation=angle + 180 if left else angle,
                rotation_mode="anchor",
                ha="right" if left else "left",
                va="center",
                fontsize=self.letters,
                linespacing=1.0,
                parse_math=False,
            )

    def draw_pictures(self, ax: Any, pictures: Mapping[int, Floats]) -> None:
        """Draw pictures (H, W) or (H, W, 3) next to their units, by number."""
        from matplotlib.offsetbox import AnnotationBbox, OffsetImage

        places = self.places(self.room / 2 + _GAP + self.side / math.sqrt(2))
        for number, picture in pictures.items():
            image = OffsetImage(picture, zoom=self.side / max(picture.shape[:2]), cmap="gray")
            ax.add_artist(AnnotationBbox(image, tuple(places[number]), frameon=False, pad=0, zorder=3))


def _length(text: str) -> float:
    """Return the length of a text in letters of size 1."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=10), ismath=False)[0]) / 10
