"""Where the names of points in a plot go, so that none lies on another, on a point, or on a line.

Beside its point, on the left first; where that is taken, further up or down, and a thin line leads to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from reports.svg import INK, MUTED

#: Height of a line of text, and mean width of its letters, in units of the font's size.
_HEIGHT, _LETTER = 1.25, 0.6
#: How far a name is from its point, and from what it must not touch; units of the drawing.
_GAP, _CLEAR, _DOT = 11.0, 2.0, 7.0
_STEPS = 24


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in units of the drawing."""

    left: float
    bottom: float
    right: float
    top: float

    def touches(self, other: Box) -> bool:
        """Whether the two have a point in common, or nearly."""
        apart = self.right + _CLEAR < other.left or other.right + _CLEAR < self.left
        return not (apart or self.top + _CLEAR < other.bottom or other.top + _CLEAR < self.bottom)

    def within(self, other: Box) -> bool:
        """Whether no part of it lies outside the other."""
        inside = self.left >= other.left and self.right <= other.right
        return inside and self.bottom >= other.bottom and self.top <= other.top


def line_boxes(start: tuple[float, float], end: tuple[float, float], half: float = 1, pieces: int = 60) -> list[Box]:
    """A straight line, or a line of text, as small boxes that names keep off; ``half`` is half its thickness."""
    shares = [number / pieces for number in range(pieces + 1)]
    spots = [(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])) for share in shares]
    return [Box(x - half, y - half, x + half, y + half) for x, y in spots]


def places(
    points: Sequence[tuple[float, float]], names: Sequence[str], room: Box, font: float, taken: Iterable[Box] = ()
) -> list[Box]:
    """A box for each name.

    Args:
        points: what they name, in units of the drawing.
        names: of the points.
        room: what the boxes must lie in.
        font: size of the letters.
        taken: what they must not touch, beside each other and the points.

    Returns:
        In the order of the points; one that fits nowhere lies at the right of its point, on whatever is there.
    """
    full = [*taken, *(Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in points)]
    found = []
    for (x, y), name in zip(points, names, strict=True):
        width, half = _LETTER * font * len(name), _HEIGHT * font / 2
        sides = (x - _GAP - width, x + _GAP)
        heights = [y + sign * half * step for step in range(_STEPS) for sign in ((1, -1) if step else (1,))]
        tried = (Box(left, at - half, left + width, at + half) for at in heights for left in sides)
        fits = (box for box in tried if box.within(room) and not any(box.touches(other) for other in full))
        box = next(fits, Box(sides[1], y - half, sides[1] + width, y + half))
        found.append(box)
        full.append(box)
    return found


def write_names(
    axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], font: float, taken: Iterable[Box] = ()
) -> None:
    """Write names beside points given in data units; ``taken`` is in units of the drawing."""
    at = [(float(x), float(y)) for x, y in axes.transData.transform(list(points))]
    window = axes.get_window_extent()
    room = Box(window.x0 + 2, window.y0 + 2, window.x1, window.y1 + 6)
    for (x, y), name, box in zip(at, names, places(at, names, room, font, taken), strict=True):
        middle = (box.bottom + box.top) / 2
        left_of_point = box.right < x
        edge = box.right if left_of_point else box.left
        if abs(middle - y) > 1:
            (x0, y0), (x1, y1) = axes.transData.inverted().transform([(x, y), (edge, middle)])
            axes.plot([x0, x1], [y0, y1], color=MUTED, linewidth=0.8, zorder=1.1)
        spot = axes.transData.inverted().transform((edge, middle))
        axes.text(
            spot[0], spot[1], name, ha="right" if left_of_point else "left", va="center", fontsize=font, color=INK
        )
