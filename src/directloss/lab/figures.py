"""How figures are saved, and put on a page."""

import io
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.files import write_atomically
from directloss.panels import COLORS, panels, use_log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLORS", "line_styles", "panels", "save", "to_bytes", "to_inline_svg", "use_log"]

_MORE_COLORS = ("#12a3b4", "#b08a00", "#a0522d", "#e36fc0", "#6f8f1f", "#6372e8")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))


def line_styles() -> Iterator[dict[str, Any]]:
    """For many lines in one panel: twelve that differ in colour, neighbours in their dashes too; then again."""
    for color, dashes in zip(cycle(COLORS + _MORE_COLORS), cycle(_DASHES), strict=False):
        yield {"color": color, "linestyle": dashes}


def to_bytes(figure: "Figure", kind: str) -> bytes:
    """The figure as svg or png, without date and random names, so that the same figure is the same file."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    metadata: dict[str, Any] | None = {"Date": None} if kind == "svg" else None
    with rc_context({"svg.hashsalt": "directloss"}):
        figure.savefig(buffer, format=kind, dpi=120, metadata=metadata)
    return buffer.getvalue()


def to_inline_svg(figure: "Figure") -> str:
    """The figure for an HTML page: text stays text, and takes the page's colour, on its own ground."""
    import matplotlib
    from matplotlib.text import Text

    ink = "#010203"
    for text in figure.findobj(Text):
        text.set_color(ink)
    for axis in figure.axes:
        axis.tick_params(colors=ink, which="both")
        for spine in axis.spines.values():
            spine.set_edgecolor(ink)
        axis.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "directloss"}):
        svg = to_bytes(figure, "svg").decode()
    return svg[svg.index("<svg") :].replace(ink, "currentColor")


def save(figure: "Figure", path: Path) -> None:
    """Write the figure as SVG and as PNG."""
    for kind in ("svg", "png"):
        write_atomically(path.with_suffix(f".{kind}"), to_bytes(figure, kind))
