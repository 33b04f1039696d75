"""Circular layout of units, with names that read outwards. Lengths are in points (1/72 inch)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import LINE_HEIGHT, MIN_FONT_SIZE, size_in_points

#: Largest and smallest diameter of the disc of a unit.
_MAX_DISC = 22.0
_MIN_DISC = 5.0
#: Largest side of an image.
_MAX_IMAGE = 40.0
#: Space between disc, image and name.
_GAP = 4.0
#: Largest font size of names.
_MAX_FONT_SIZE = 10.0
#: Minimum radius of the circle, as a share of half the axes, where names are long.
_MIN_RADIUS = 0.35
#: Height that a layout engine takes from the axes for title and legend.
_LAYOUT_HEIGHT = 50.0


@dataclass(frozen=True)
class Circle:
    """Positions on a circle of radius 1 in data coordinates, the first on top, then clockwise.

    Attributes
    ----------
    n_units
        Number of positions.
    radius
        Radius of the circle.
    disc
        Diameter available for the disc of a unit.
    image
        Side available for the image of a unit, 0 if there are no images.
    font_size
        Font size of the names.
    """

    n_units: int
    radius: float
    disc: float
    image: float
    font_size: float

    @classmethod
    def fit(cls, ax: Any, labels: list[str], has_images: bool) -> Circle:
        """Return the largest circle around which ``labels`` fit into the axes, and set the limits of the axes."""
        ax.set_aspect("equal")
        width, height = size_in_points(ax)
        layout_height = _LAYOUT_HEIGHT * bool(ax.figure.get_layout_engine())
        half, n_units = min(width, height - layout_height) / 2, len(labels)
        spacing = 2 * np.pi * 0.6 * half / n_units
        image = min(_MAX_IMAGE, spacing) if has_images else 0.0
        draft = cls(n_units, 0.0, min(_MAX_DISC, 0.8 * spacing), image, MIN_FONT_SIZE)
        longest = max(_text_width(line) for label in labels for line in label.split("\n"))
        lines = max(label.count("\n") + 1 for label in labels)
        # Take the largest font for which the circle is not too small and neighbouring names do not overlap.
        for font_size in np.arange(_MAX_FONT_SIZE, MIN_FONT_SIZE - 0.1, -0.5):
            radius = half - draft.name_offset - font_size * longest
            arc = 2 * np.pi * (radius + draft.name_offset) / n_units
            if radius >= _MIN_RADIUS * half and arc >= LINE_HEIGHT * lines * font_size:
                break
        radius = max(radius, _MIN_RADIUS * half)
        ax.set(xlim=(-half / radius, half / radius), ylim=(-half / radius, half / radius), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return cls(n_units, radius, draft.disc, draft.image, float(font_size))

    @property
    def name_offset(self) -> float:
        """Distance between circle and names: half the disc, and the diagonal of the image where there is one."""
        return self.disc / 2 + _GAP + (math.sqrt(2) * self.image + _GAP) * bool(self.image)

    @property
    def angles(self) -> Floats:
        """Angle (n,) of each unit in radians, counter-clockwise from the right."""
        return np.asarray(np.pi / 2 - 2 * np.pi * np.arange(self.n_units) / self.n_units)

    def positions(self, offset: float = 0.0) -> Floats:
        """Return positions (n, 2) in data coordinates, ``offset`` points outside the circle."""
        return np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1) * (1 + offset / self.radius)

    def draw_units(self, ax: Any, sizes: Floats) -> None:
        """Draw discs whose areas are proportional to ``sizes`` (n,), but not smaller than can be seen."""
        areas = np.maximum(self.disc**2 * sizes / (sizes.max() or 1.0), _MIN_DISC**2)
        ax.scatter(*self.positions().T, s=areas, c=palette.NONE, edgecolors=palette.LINE, linewidths=1, zorder=2)

    def draw_names(self, ax: Any, labels: list[str]) -> None:
        """Write labels along the radius, turned on the left half so that none is upside down."""
        for label, angle, position in zip(
            labels, np.degrees(self.angles), self.positions(self.name_offset), strict=True
        ):
            left = position[0] < -1e-9
            ax.text(
                *position,
                label,
                rotation=angle + 180 if left else angle,
                rotation_mode="anchor",
                ha="right" if left else "left",
                va="center",
                fontsize=self.font_size,
                linespacing=1.0,
                parse_math=False,
            )

    def draw_images(self, ax: Any, images: Mapping[int, Floats]) -> None:
        """Draw images (H, W) or (H, W, 3) next to their units, by index."""
        from matplotlib.offsetbox import AnnotationBbox, OffsetImage

        positions = self.positions(self.disc / 2 + _GAP + self.image / math.sqrt(2))
        for unit, image in images.items():
            box = OffsetImage(image, zoom=self.image / max(image.shape[:2]), cmap="gray")
            ax.add_artist(AnnotationBbox(box, tuple(positions[unit]), frameon=False, pad=0, zorder=3))


def _text_width(text: str) -> float:
    """Return the width of a text per point of font size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=10), ismath=False)[0]) / 10
