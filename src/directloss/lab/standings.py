"""From the rows of compared rules to a table: mean, spread, the paired difference to the best rival, and a verdict."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from directloss.lab.pairs import Difference, best_of, paired, resampled
from directloss.lab.table import Column, Line, grouped

Rows = Sequence[Any]


def lines(rows: Rows, place: Callable[[Any], str], sees: Callable[[Any], str]) -> list[Line]:
    """A line for each place (a task with its options), metric and loss, the best loss first.

    The difference is to the best of the other losses: under the same seeds, or, where a metric keeps a value for each
    instance, over resampled instances.
    """
    found = []
    for where, metric, losses in _contests(rows, place):
        differences = {loss: _against(loss, losses, metric) for loss in losses}
        factor = 100 if losses[next(iter(losses))][0]["metrics"][metric]["percent"] else 1
        for loss in _best_first(losses, metric):
            group = losses[loss]
            values = [factor * row["metrics"][metric]["value"] for row in group]
            rival = next((other for other in _best_first(losses, metric) if other != loss), None)
            difference = differences[loss].get(rival) if rival else None
            sign = -1 if group[0]["metrics"][metric]["higher"] else 1
            found.append(
                {
                    "place": where,
                    "metric": group[0]["metrics"][metric]["name"] + (" %" if factor == 100 else ""),
                    "loss": loss,
                    "sees": sees(group[0]),
                    "n": len(group),
                    "mean": statistics.fmean(values),
                    "std": statistics.stdev(values) if len(values) > 1 else None,
                    "rival": rival,
                    "difference": difference and factor * sign * difference.mean,
                    "low": difference and factor * min(sign * difference.low, sign * difference.high),
                    "high": difference and factor * max(sign * difference.low, sign * difference.high),
                    "last": _last(group, metric, factor),
                    "epoch": statistics.fmean(row["epoch"] for row in group),
                    "seconds": statistics.fmean(row["seconds"] for row in group),
                    "best": best_of(differences) == loss,
                }
            )
    return found


def measured(row: Any) -> Line:
    """The metrics of a row by their names."""
    return {metric["name"]: metric["value"] for metric in row["metrics"]}


def verdicts(rows: Rows, place: Callable[[Any], str]) -> list[str]:
    """A sentence for each contest: which loss is best, or that it cannot be told."""
    said: list[tuple[str, str]] = []
    for line in (one for one in lines(rows, place, lambda row: "") if one["rival"]):
        contest = ", ".join(filter(None, (line["place"], line["metric"])))
        if said and said[-1][0] == contest:
            continue  # the first line of a contest is the best loss's
        interval = f"{_interval(line)} over {line['n']} seeds"
        told = f"{line['loss']} is best, {interval} against {line['rival']}"
        open_ = f"it cannot be told which is best; {line['loss']} is ahead of {line['rival']} by {interval}"
        said.append((contest, f"{contest}: {told if line['best'] else open_}"))
    return [sentence for _, sentence in said]


def columns(*before: Column) -> tuple[Column, ...]:
    """How such lines are shown."""
    return (
        *before,
        Column("metric", "measure", setting=True),
        Column("loss", "loss"),
        Column("sees", "sees", setting=True),
        Column("n", "n", setting=True),
        Column("mean", "mean", show="{:.2f}"),
        Column("std", "± std", show="{:.2f}"),
        Column("rival", "best rival"),
        Column("difference", "paired difference, 95 %", show=_interval),
        Column("low"),
        Column("high"),
        Column("best"),
        Column("epoch", "epoch", show="{:.0f}"),
        Column("last", "last epoch", show="{:.2f}"),
        Column("seconds", "seconds", show="{:.2f}"),
    )


def _interval(line: Line) -> str:
    if line["difference"] is None:
        return "-"
    return f"{line['difference']:+.2f} ({line['low']:+.2f} to {line['high']:+.2f})"


def _contests(rows: Rows, place: Callable[[Any], str]) -> Iterable[tuple[str, int, dict[str, list[Any]]]]:
    for where, alike in grouped(rows, place).items():
        losses = grouped(alike, lambda row: row["loss"])
        for metric in range(len(next(iter(losses.values()))[0]["metrics"])):
            yield where, metric, losses


def _last(rows: Rows, metric: int, factor: float) -> float | None:
    """The mean of the last epoch, where another one was chosen and the course is of this metric."""
    name = rows[0]["metrics"][metric]["name"]
    if metric or not any(row["epoch"] < row["epochs"] and row["course"] for row in rows):
        return None
    return statistics.fmean(factor * row["course"][-1][name] for row in rows)


def _signed(row: Any, metric: int) -> float:
    one = row["metrics"][metric]
    return float(-one["value"] if one["higher"] else one["value"])


def _best_first(losses: dict[str, list[Any]], metric: int) -> list[str]:
    return sorted(losses, key=lambda loss: statistics.fmean(_signed(row, metric) for row in losses[loss]))


def _against(loss: str, losses: dict[str, list[Any]], metric: int) -> dict[str, Difference]:
    """The differences of a loss to every other one that was trained under some of the same seeds."""
    found = {}
    mine = {row.repetition: row for row in losses[loss]}
    for other, rows in losses.items():
        theirs = {row.repetition: row for row in rows}
        shared = sorted(mine.keys() & theirs.keys())
        if other == loss or not shared:
            continue
        if mine[shared[0]]["metrics"][metric]["each"]:
            each = (_mean_of_each([side[number] for number in shared], metric) for side in (mine, theirs))
            found[other] = resampled(*each)
        else:
            values = ([_signed(side[number], metric) for number in shared] for side in (mine, theirs))
            found[other] = paired(*values)
    return found


def _mean_of_each(rows: Rows, metric: int) -> list[float]:
    """For each instance the mean over seeds, negated where higher is better."""
    sign = -1 if rows[0]["metrics"][metric]["higher"] else 1
    columns = zip(*(row["metrics"][metric]["each"] for row in rows), strict=True)
    return [sign * statistics.fmean(column) for column in columns]
