"""The figure of an audit."""

import math
from collections.abc import Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

from directloss.panels import COLORS, panels, use_log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("bias", "length of the bias; faint: its standard error"),
    ("deviation", "standard deviation of a call"),
    ("cosine", "cosine of a call with the exact gradient"),
    ("zero", "share of zero gradients"),
)
NUMBERS = ("bias", "bias_error", "deviation", "cosine", "signal", "zero", "seconds")
KEYS = ("target", "rule", "scale")
RULES = ("one, ε < 0", "one, ε > 0", "both", "-")


def setting_along(rows: Sequence[dict[str, Any]]) -> str:
    """What the x axis shows: epsilon, or else the first other setting that is a number and takes several values."""
    known = {*KEYS, *NUMBERS, "epsilon", "sides", "samples"}
    for name in ("epsilon", *dict.fromkeys(name for row in rows for name in row if name not in known)):
        values = {row.get(name) for row in rows}
        if all(isinstance(value, int | float) and value != 0 for value in values) and len(values) > 1:
            return name
    return "epsilon"


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """A row of panels for each gradient; colour is the rule, the line's style the scale and the number of samples."""
    along = setting_along(rows)
    targets = list(dict.fromkeys(row["target"] for row in rows))
    figure, axes = panels(len(PANELS), len(targets))
    kinds = sorted({(row["scale"], row.get("samples", 1)) for row in rows})
    styles = dict(zip(kinds, cycle(("-", "--", ":", "-.")), strict=False))
    for axis, (target, (name, label)) in zip(axes, product(targets, PANELS), strict=True):
        for rule, color in zip(RULES, COLORS, strict=False):
            for (scale, samples), style in styles.items():
                wanted = (target, rule, scale, samples)
                mine = [row for row in rows if (*map(row.get, KEYS), row.get("samples", 1)) == wanted]
                zero = math.nan if name == "bias" else 0.0
                points = sorted((abs(row.get(along, 1.0)), row[name] or zero, row["bias_error"]) for row in mine)
                if not points:
                    continue
                x, y, error = zip(*points, strict=True)
                text = f"{rule}, σ = {scale:g}" + (f", {samples} samples" if samples > 1 else "")
                axis.plot(x, y, style, color=color, marker=".", label=text)
                if name == "bias":
                    axis.plot(x, error, style, color=color, alpha=0.3, linewidth=1)
        positive = any(row[name] > 0 for row in rows if row["target"] == target)
        use_log(axis, *("xy" if positive and name in ("bias", "deviation") else "x"))
        axis.set_xlabel("|ε|" if along == "epsilon" else along)
        axis.set_title(f"{label}\n(gradient to the {target})", fontsize=10)
    lines, labels = axes[-1].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)  # may be many
    return figure
