"""Learning curves of the neighbours' experiment."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
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
    "sigma": "scale of the noise",
}


def points(rows: Sequence[Any]) -> list[Line]:
    """The curves, a line for each epoch."""
    names = ("data", "method", "k", "seed")
    return [{name: row[name] for name in names} | point for row in rows for point in row["curve"]]


def draw(rows: Sequence[Any]) -> "Figure":
    """Learning curves: training loss, validation accuracy, the share of images that need a backward pass, and sigma.

    A line of panels for each data set and k, a colour for each method; of several trainings, the mean and the range.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    curves: dict[tuple[str, int], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        curves[row["data"], row["k"]][row["method"]].append(row["curve"])
    noisy = {row["method"] for row in rows if any(point.get("sigma") for point in row["curve"])}
    shown = {name: label for name, label in CURVES.items() if name != "sigma" or noisy}
    figure, axes = figures.panels(len(shown), len(curves), height=3.4 if len(curves) == 1 else 2.6)
    for axis, (((data, k), found), (name, label)) in zip(axes, product(curves.items(), shown.items()), strict=True):
        for method, trainings in found.items():
            if name == "sigma" and method not in noisy:
                continue
            color = figures.COLORS[methods.index(method) % len(figures.COLORS)]
            longest = max(trainings, key=len)
            epochs = [point["epoch"] for point in longest]
            values = [[curve[index][name] for curve in trainings if index < len(curve)] for index in range(len(epochs))]
            axis.plot(epochs, [statistics.fmean(each) for each in values], color=color, linewidth=1.2, label=method)
            if len(trainings) > 1:
                low, high = [min(each) for each in values], [max(each) for each in values]
                axis.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0)
        if name == "sigma" and axis.lines:
            figures.use_log(axis, "y")
        axis.xaxis.get_major_locator().set_params(integer=True)
        place = axis.get_subplotspec()
        if place.is_first_row():
            axis.set_title(label, fontsize=10)
        if place.is_last_row():
            axis.set_xlabel("epoch", fontsize=9)
        if place.is_first_col():
            axis.set_ylabel(f"{data}, k = {k}", fontsize=10)
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", fontsize=8, frameon=False)
    return figure
