"""Compared losses in pictures: where they end, how they get there, and what a criterion that sets itself does.

Panels stand below one another, so that they can be read on a phone. ``place`` names what losses are compared within.
"""

import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from directloss.lab import figures, standings
from directloss.lab.table import Line, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Any]
Place = Callable[[Any], str]

HANDS_FREE = "direct"  # the loss that is emphasised
_BEYOND = 4  # a loss that is so many times as far from the best as the median one would squeeze the others
_TOP = 3  # a course is shown up to so many times the best value
_SETTINGS = {"scale": "scale", "epsilon": "ε to better", "epsilon1": "ε to worse"}


def standing_points(rows: Rows, place: Place) -> list[Line]:
    """Mean of each loss, the best first, the interval from ``low`` to ``high`` where the best mean plus the paired
    difference to it lies, and whether the loss is beyond the axis of the figure."""
    found = []
    for lines in _contests(standings.lines(rows, place, lambda row: "")).values():
        best = lines[0]["mean"]
        # The first line's difference is to the second best.
        ends = [(None, None), *(_ends(best, line["low"], line["high"]) for line in lines[1:])]
        kept = [
            {name: line[name] for name in ("place", "metric", "loss", "n", "mean")} | {"low": low, "high": high}
            for line, (low, high) in zip(lines, ends, strict=True)
        ]
        limit = _limit(kept)
        found += [line | {"beyond": abs(line["mean"] - best) > limit} for line in kept]
    return found


def draw_standings(rows: Rows, place: Place) -> "Figure":
    """A row for each loss. An interval that reaches the dotted line, the best mean, cannot be told from it."""
    contests = _contests(standing_points(rows, place))
    most = max(map(len, contests.values()), default=4)
    figure, axes = _stack(len(contests), 1.0 + 0.24 * most, "no results")
    for axis, ((where, metric), lines) in zip(axes, contests.items(), strict=False):
        best, limit = lines[0]["mean"], _limit(lines)
        shown = [line for line in lines if not line["beyond"]]
        ends = [min(max(end, best - limit), best + limit) for line in shown for end in _reached(line)]
        low, high = min([best, *ends]), max([best, *ends])
        margin = 0.06 * (high - low) or 0.05 * abs(best) or 1.0
        axis.set_xlim(low - margin, high + margin)
        axis.set_ylim(len(lines) - 0.5, -0.5)
        axis.axvline(best, color=figures.COLORS[5], linestyle=":", linewidth=1)
        for height, line in enumerate(lines):
            ours = line["loss"] == HANDS_FREE
            color, size = figures.COLORS[0 if ours else 5], 8 if ours else 6
            if line["beyond"]:
                edge, marker = (1.0, ">") if line["mean"] > best else (0.0, "<")
                axis.plot(edge, height, marker, color=color, transform=axis.get_yaxis_transform(), clip_on=False)
            else:
                axis.plot(_reached(line), [height] * len(_reached(line)), color=color, linewidth=2.8 if ours else 1.6)
                axis.plot(line["mean"], height, "o", color=color, markersize=size)
            axis.text(
                *(1.04, height, f"{line['mean']:.2f}"),
                transform=axis.get_yaxis_transform(),
                va="center",
                fontsize=10,
                weight="bold" if ours else "normal",
            )
        axis.set_yticks(range(len(lines)), [line["loss"] for line in lines], fontsize=10)
        for label, line in zip(axis.get_yticklabels(), lines, strict=True):
            label.set_weight("bold" if line["loss"] == HANDS_FREE else "normal")
        axis.tick_params(axis="y", length=0)
        axis.locator_params(axis="x", nbins=5)
        _set_title(axis, where)
        axis.set_xlabel(metric, fontsize=10)
    return figure


def course_points(rows: Rows, place: Place) -> list[Line]:
    """What was measured, and what the criterion said of itself, after each epoch of each training."""
    return [
        {"place": where, "loss": row["loss"], "repetition": row.repetition, "epoch": epoch, **at}
        for row in rows
        for where in [place(row)]
        for epoch, at in enumerate(row["course"], 1)
    ]


def draw_course(rows: Rows, place: Place) -> "Figure":
    """The mean over seeds after each epoch. The legend has the last values, the best first."""
    places = grouped([row for row in rows if row["course"]], place)
    looks = dict(zip(dict.fromkeys(row["loss"] for row in rows), figures.line_styles(), strict=False))
    figure, axes = _stack(len(places), 4.8, "no course of training")
    for axis, (where, group) in zip(axes, places.items(), strict=False):
        metric = group[0]["metrics"][0]
        sign = -1 if metric["higher"] else 1
        courses = {loss: _mean_course(alike) for loss, alike in grouped(group, lambda row: row["loss"]).items()}
        for loss, means in sorted(courses.items(), key=lambda one: sign * one[1][-1]):
            ours = loss == HANDS_FREE
            axis.plot(
                range(1, len(means) + 1),
                means,
                label=f"{loss} {means[-1]:.2f}",
                marker="o" if len(means) == 1 else "",
                linewidth=2.8 if ours else 1.5,
                zorder=3 if ours else 2,
                **looks[loss],
            )
        values = [value for means in courses.values() for value in means]
        if metric["higher"]:
            axis.set_ylim(bottom=max(axis.get_ylim()[0], max(values) / _TOP))
        elif min(values) > 0:
            figures.use_log(axis, "y", subs=range(1, 10))
            axis.set_ylim(0.97 * min(values), 1.03 * min(max(values), _TOP * min(values)))
        _label_epochs(axis, where, metric["name"] + (" %" if metric["percent"] else ""))
        _legend_below(axis)
    return figure


def setting_points(rows: Rows, place: Place) -> list[Line]:
    """Scale and epsilons after each epoch, their sizes without sign: mean and range over seeds."""
    found: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for line in course_points(rows, place):
        for name in _SETTINGS.keys() & line.keys():
            if line[name]:  # a logarithm is taken
                found[line["place"], line["loss"], name, line["epoch"]].append(abs(line[name]))
    order = list(_SETTINGS)
    return [
        {
            **{"place": where, "loss": loss, "setting": name, "epoch": epoch, "n": len(values)},
            **{"mean": statistics.fmean(values), "low": min(values), "high": max(values)},
        }
        for (where, loss, name, epoch), values in sorted(found.items(), key=lambda one: order.index(one[0][2]))
    ]


def draw_settings(rows: Rows, place: Place) -> "Figure":
    """A panel for each place and loss whose criterion says what its settings are."""
    panels = grouped(setting_points(rows, place), lambda line: (line["place"], line["loss"]))
    figure, axes = _stack(len(panels), 3.6, "no loss that finds its own scale and epsilon")
    looks = dict(zip(_SETTINGS, figures.line_styles(), strict=False))
    for axis, ((where, loss), lines) in zip(axes, panels.items(), strict=False):
        for name, alike in grouped(lines, lambda line: line["setting"]).items():
            epochs = [line["epoch"] for line in alike]
            means, low, high = ([line[key] for line in alike] for key in ("mean", "low", "high"))
            label = f"{_SETTINGS[name]} {means[-1]:.3g}"
            axis.plot(epochs, means, label=label, marker="o" if len(epochs) == 1 else "", linewidth=2, **looks[name])
            axis.fill_between(epochs, low, high, color=looks[name]["color"], alpha=0.25, linewidth=0)
        figures.use_log(axis, "y")
        _label_epochs(axis, f"{where}: {loss}", "size, mean and range")
        _legend_below(axis)
    return figure


def _contests(lines: Iterable[Line]) -> dict[tuple[str, str], list[Line]]:
    return grouped(lines, lambda line: (line["place"], line["metric"]))


def _ends(best: float, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Of the interval; None without a shared seed, or with only one, of which nothing is known."""
    if low is None or high is None or not math.isfinite(high - low):
        return None, None
    return best + low, best + high


def _reached(line: Line) -> list[float]:
    """Mean and ends of the interval."""
    return [line[name] for name in ("mean", "low", "high") if line[name] is not None]


def _limit(lines: Sequence[Line]) -> float:
    """How far from the best the axis may go: by the median of how far the other losses and their intervals reach."""
    reaches = [max(abs(end - lines[0]["mean"]) for end in _reached(line)) for line in lines[1:]]
    return _BEYOND * statistics.median_low(reaches) if reaches else 0.0


def _mean_course(rows: Rows) -> list[float]:
    metric = rows[0]["metrics"][0]
    factor = 100 if metric["percent"] else 1
    length = min(len(row["course"]) for row in rows)
    return [factor * statistics.fmean(row["course"][epoch][metric["name"]] for row in rows) for epoch in range(length)]


def _stack(count: int, height: float, otherwise: str) -> tuple["Figure", list[Any]]:
    """Panels below one another; if there are none, a figure that says why."""
    figure, axes = figures.panels(1, max(1, count), width=4.5, height=height if count else 1.0)
    if not count:
        axes[0].set_axis_off()
        axes[0].text(0.5, 0.5, otherwise, ha="center", va="center", fontsize=10)
    return figure, axes


def _set_title(axis: Any, title: str) -> None:
    axis.set_title(textwrap.fill(title, 44), fontsize=11)


def _label_epochs(axis: Any, title: str, measured: str) -> None:
    _set_title(axis, title)
    axis.set_xlabel("epoch", fontsize=10)
    axis.set_ylabel(measured, fontsize=10)
    axis.xaxis.get_major_locator().set_params(integer=True)


def _legend_below(axis: Any) -> None:
    axis.legend(fontsize=9, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.16), handlelength=3.2)
