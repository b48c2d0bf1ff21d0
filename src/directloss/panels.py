"""How every figure of the project looks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from directloss.errors import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Legible on white and on black, and to the colour-blind.
COLORS = ("#2878b5", "#d1662b", "#3a923a", "#8c6bb1", "#c44e73", "#7f7f7f")


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


def use_log(axis: Any, *which: str, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Logarithmic x, y or both, labelled 1, 2, 5 (or ``subs``) with plain numbers; over many decades 1 only."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    for name in which:
        getattr(axis, f"set_{name}scale")("log")
        part = getattr(axis, f"{name}axis")
        low, high = part.get_data_interval()
        part.set_major_locator(LogLocator(subs=(1.0,) if 0 < low < high / 3000 else subs))
        part.set_major_formatter(FormatStrFormatter("%g"))
        part.set_minor_formatter(NullFormatter())
