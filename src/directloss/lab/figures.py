"""How figures are saved, and put on a page."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.files import write_atomically
from directloss.panels import COLORS, panels, use_log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLORS", "panels", "save", "to_bytes", "to_inline_svg", "use_log"]


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
