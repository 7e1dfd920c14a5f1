"""Matplotlib figures as inline SVG that follows the page: its colours, its font, its width.

A chart is drawn with the stand-in colours of `INK` and its like, which become CSS variables here, so that one SVG
reads well on light and on dark paper. One unit is one CSS pixel at full size.
"""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
PAPER = "#010206"
EXACT = "#010207"
OTHER = "#010208"
LIMIT = "#010209"
BUDGET = "#01020a"
FAINT = "#01020b"

CSS_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    EXACT: "--exact",
    OTHER: "--other",
    LIMIT: "--limit",
    BUDGET: "--budget",
    FAINT: "--faint",
}
"""Stand-in colours of the drawing code and the CSS variables that take their place."""

PARTS = {
    name: f"#0103{number:02x}"
    for number, name in enumerate(
        ("qkv", "attention", "o", "gate_up", "down", "head", "norm", "quantise", "input", "choose", "wait")
    )
}
"""Stand-in colours of the parts of a frame."""

CSS_VARIABLES |= {stand_in: f"--part-{name}" for name, stand_in in PARTS.items()}

UNITS_PER_INCH = 72.0

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 1.0,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 1.0,
    "figure.facecolor": "none",
}


def drawing() -> AbstractContextManager[None]:
    """The context that every chart is drawn and saved in."""
    return rc_context(STYLE)


def new_axes(width: float, height: float, left: float, right: float, top: float, bottom: float) -> tuple[Figure, Axes]:
    """A figure of ``width`` x ``height`` units with one pair of axes inside these margins (units)."""
    figure = Figure(figsize=(width / UNITS_PER_INCH, height / UNITS_PER_INCH), dpi=UNITS_PER_INCH)
    FigureCanvasSVG(figure)
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    axes = figure.add_axes(box)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def inline(figure: Figure, name: str, title: str, description: str) -> str:
    """``figure`` as an ``<svg>`` element whose ids all start with ``name``.

    Must run inside `drawing`; the same figure gives the same bytes.
    """
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return _rewrite(buffer.getvalue(), name, title, description)


def _rewrite(text: str, name: str, title: str, description: str) -> str:
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(?<=\sid=")', f"{name}-", body)
    body = re.sub(r'(?<=href="#)|(?<=url\(#)', f"{name}-", body)
    body = re.sub(r"(font: [^;\"]*?\d(?:\.\d+)?px)[^;\"]*", r"\1 var(--sans)", body)
    for stand_in, variable in CSS_VARIABLES.items():
        body = body.replace(stand_in, f"var({variable})")
    viewbox = re.search(r'viewBox="0 0 (\S+) (\S+)"', body)
    if viewbox is None:
        raise ValueError(f"{name}: matplotlib wrote an SVG without a viewBox")
    width = float(viewbox[1])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {viewbox[0]} '
        f'style="max-width:{width:g}px" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    )
    return re.sub(r"\n\s*", "\n", head + body[body.index(">") + 1 :]).strip()
