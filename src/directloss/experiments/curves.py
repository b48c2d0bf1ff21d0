"""Learning curves of the neighbours' experiment."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any

from directloss.lab import figures
from directloss.lab.table import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What the learning curves show.
CURVES = {
    "loss": "training loss",  # wrong neighbours; of softmax-knn the cross-entropy
    "validation_accuracy": "validation accuracy",
    "active": "images with a gradient",
    "noise": "scale / spread of the distances",
    "sigma": "scale of the noise",  # where the spread is not known
}


def points(rows: Sequence[Any]) -> list[Line]:
    """The curves, a line for each epoch."""
    names = ("data", "method", "k", "seed")
    return [{name: row[name] for name in names} | point for row in rows for point in row["curve"]]


def draw(rows: Sequence[Any]) -> "Figure":
    """Learning curves: training loss, validation accuracy, the share of images that need a backward pass, and noise.

    A line of panels for each data set and k, a colour for each method; of several trainings, the mean and the range.
    """
    methods = dict(zip(dict.fromkeys(row["method"] for row in rows), figures.line_styles(), strict=False))
    curves: dict[tuple[str, int], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        curves[row["data"], row["k"]][row["method"]].append(row["curve"])
    known = [name for name in CURVES if any(_value(point, name) is not None for row in rows for point in row["curve"])]
    shown = [name for name in known if name != "sigma" or "noise" not in known]
    figure, axes = figures.panels(len(shown), len(curves), height=3.4 if len(curves) == 1 else 2.6)
    for axis, (((data, k), found), name) in zip(axes, product(curves.items(), shown), strict=True):
        for method, trainings in found.items():
            measured = [[_value(point, name) for point in curve] for curve in trainings]
            seen = [[value for value in each if value is not None] for each in zip_longest(*measured)]
            epochs, values = [epoch for epoch, each in enumerate(seen, 1) if each], [each for each in seen if each]
            if not epochs:
                continue
            style = methods[method]
            axis.plot(epochs, [statistics.fmean(each) for each in values], linewidth=1.2, label=method, **style)
            if len(trainings) > 1:
                low, high = [min(each) for each in values], [max(each) for each in values]
                axis.fill_between(epochs, low, high, color=style["color"], alpha=0.15, linewidth=0)
        if not axis.lines:
            axis.set_axis_off()
        elif name in ("noise", "sigma"):
            figures.use_log(axis, "y")
        axis.xaxis.get_major_locator().set_params(integer=True)
        place = axis.get_subplotspec()
        if place.is_first_row():
            axis.set_title(CURVES[name], fontsize=10)
        if place.is_last_row():
            axis.set_xlabel("epoch", fontsize=9)
        if place.is_first_col():
            axis.set_ylabel(f"{data}, k = {k}", fontsize=10)
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def _value(point: dict[str, float], name: str) -> float | None:
    """What a curve shows at an epoch; None where there is no noise, or where the spread is not known."""
    if name == "noise":
        return point["sigma"] / point["spread"] if point.get("sigma") and point.get("spread") else None
    return point.get("sigma") or None if name == "sigma" else point[name]
