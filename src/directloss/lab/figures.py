"""How every figure of the project looks and is saved."""

import io
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.errors import need
from directloss.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Legible on white and on black, and to the colour-blind.
COLORS = ("#2878b5", "#d1662b", "#3a923a", "#8c6bb1", "#c44e73", "#7f7f7f")
_MORE_COLORS = ("#12a3b4", "#b08a00", "#a0522d", "#e36fc0", "#6f8f1f", "#6372e8")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))


def panels(count: int, rows: int = 1, width: float = 4.0, height: float = 3.4) -> tuple["Figure", list[Any]]:
    """A figure with a row of axes, or several, without clutter."""
    need("matplotlib", "a figure", extra="lab")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, count, squeeze=False).flat)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9)
    return figure, axes


def line_styles() -> Iterator[dict[str, Any]]:
    """For many lines in one panel: twelve that differ in colour, neighbours in their dashes too; then again."""
    for color, dashes in zip(cycle(COLORS + _MORE_COLORS), cycle(_DASHES), strict=False):
        yield {"color": color, "linestyle": dashes}


def use_log(axis: Any, *which: str, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Logarithmic x, y or both, labelled 1, 2, 5 (or ``subs``) with plain numbers."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    for name in which:
        getattr(axis, f"set_{name}scale")("log")
        part = getattr(axis, f"{name}axis")
        part.set_major_locator(LogLocator(subs=subs))
        part.set_major_formatter(FormatStrFormatter("%g"))
        part.set_minor_formatter(NullFormatter())


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
