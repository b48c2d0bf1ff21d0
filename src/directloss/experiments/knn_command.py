"""``directloss knn``: options to cells, cells to rows, rows to tables 3 and 4 and learning curves."""

import json
import math
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from directloss import data as image_data
from directloss import nets
from directloss.errors import UserError
from directloss.experiments import figures, neighbors, summary
from directloss.experiments.images import Images
from directloss.experiments.parallel import Ranks
from directloss.experiments.results_command import to_csv
from directloss.experiments.sort_command import one_of, split_list, split_numbers
from directloss.files import write_atomically
from directloss.losses.direct import Sides
from directloss.runs import code_version, config_hash, open_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where none is asked for: the paper's own, or one that two cores can train; else a resnet9.
_NETS = {
    "paper": {"mnist": "lenet", "fashion-mnist": "resnet18", "cifar-10": "resnet18"},
    "best": {"mnist": "lenet"},
}
# Options that replace the recipe's choice.
OVERRIDES = ("epochs", "candidates", "queries", "width", "learning_rate", "epsilon", "sides")
KEYS = (
    "data",
    "method",
    "k",
    "net",
    "recipe",
    "epochs",
    "accuracy",
    "validation_accuracy",
    "sigma",
    "seconds_per_epoch",
    "seconds_per_query",
    "seed",
)
# What the learning curves show.
CURVES = {
    "loss": "wrong neighbours in training",
    "validation_accuracy": "validation accuracy",
    "active": "images with a gradient",
}


@dataclass(frozen=True)
class Options:
    """What ``directloss knn`` was asked for. None leaves a choice to the recipe."""

    data: str = "mnist"
    k: str = "5"
    methods: str = "dsl"
    net: str | None = None
    recipe: str = "best"
    seed: str = "0"
    epochs: int | None = None
    candidates: int | None = None
    queries: int | None = None
    width: int | None = None
    learning_rate: float | None = None
    epsilon: float | None = None
    sides: str | None = None
    threads: int | None = None


def read_cells(options: Options) -> list[neighbors.Config]:
    """The configuration of every cell, all choices checked before anything is written."""
    names = split_list("--data", options.data)
    for name in names:
        one_of("--data", name, image_data.SOURCES)
    methods = split_list("--methods", options.methods)
    for method in methods:
        one_of("--methods", method, neighbors.METHODS)
    one_of("--recipe", options.recipe, neighbors.RECIPES)
    if options.net is not None:
        one_of("--net", options.net, nets.IMAGE_NETS)
    counts, seeds = split_numbers("--k", options.k), split_numbers("--seed", options.seed)
    for seed in seeds:
        if not 0 <= seed < 1 << 63:
            raise UserError(f"--seed has {seed}; expected 0 to {(1 << 63) - 1}")
    for name, least in (("epochs", 1), ("candidates", 2), ("queries", 0), ("width", 1), ("threads", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}; expected at least {least}")
    if options.epsilon is not None and (options.epsilon == 0 or not math.isfinite(options.epsilon)):
        raise UserError(f"--epsilon is {options.epsilon}; expected a finite number other than 0")
    if options.learning_rate is not None and not 0 < options.learning_rate < math.inf:
        raise UserError(f"--learning-rate is {options.learning_rate}; expected a finite number above 0")
    if options.sides is not None:
        one_of("--sides", options.sides, get_args(Sides))
    overrides: dict[str, Any] = {
        name: getattr(options, name) for name in OVERRIDES if getattr(options, name) is not None
    }
    cells = []
    for name, seed, method, k in product(names, seeds, methods, counts):
        net = options.net or _NETS[options.recipe].get(name, "resnet9")
        if options.width is not None and net != "resnet9":
            raise UserError(f"--width is of a resnet9, but the net for {name} is {net}; leave it out, or give --net")
        cell = neighbors.RECIPES[options.recipe](name, method, k, net, seed)
        if name == "digits":
            cell = replace(cell, validation=200, candidates=min(cell.candidates, 400))
        cells.append(replace(cell, **overrides, limit=max(cell.limit, abs(options.epsilon or 0))))
    return cells


def run(
    options: Options, data_dir: Path | None, store: Path, checkpoints: Path, output: Path | None, as_json: bool
) -> None:
    """The whole command."""
    cells = read_cells(options)
    kept = {cell.data: cell.validation for cell in cells}
    images = {name: Images(image_data.load(name, data_dir), validation) for name, validation in kept.items()}
    if options.threads:
        torch.set_num_threads(options.threads)
    ranks = Ranks.join()
    for cell in cells:
        cell.check(len(images[cell.data].train), ranks.count)
    for name, net in dict.fromkeys((cell.data, cell.net) for cell in cells):
        _check_net(net, images[name])
    saved = open_store(store, *filter(None, (output, checkpoints)))
    for cell in cells:
        config = asdict(cell)
        if saved.finished("neighbors", config):
            continue
        checkpoint = checkpoints / f"{config_hash('neighbors', config)}.pt"
        with _progress(cell, ranks.index == 0 and sys.stderr.isatty()) as (on_step, on_epoch):
            result = neighbors.train(cell, images[cell.data], checkpoint, ranks, on_step, on_epoch)
        if ranks.index == 0:
            saved.add("neighbors", config, [(0, result)], ", ".join(result.pop("commits")))
    ranks.leave()
    if ranks.index:
        return
    rows = [row for cell in cells for row in saved.rows("neighbors", config_hash("neighbors", asdict(cell)))]
    if output:
        _write(output, rows)
    if as_json:
        print(json.dumps([{key: row[key] for key in KEYS} for row in rows]))
        return
    _show(rows)
    print(f"Rows: {store}" + (f", tables: {output}" if output else ""))


def _check_net(net: str, images: Images) -> None:
    """Refuse images that a net cannot embed."""
    try:
        nets.IMAGE_NETS[net](images.train.shape[1], images.train.shape[-1])
    except ValueError as error:
        raise UserError(f"--net {net} is not for these images: {error}; give another --net") from None


def table_3(rows: Sequence[dict[str, Any]]) -> str:
    """The paper's table 3, a part for each data set: ours, a mean over the seeds, and the paper's."""
    parts = []
    for data in dict.fromkeys(row["data"] for row in rows):
        chosen = [row for row in rows if row["data"] == data]
        counts = sorted({row["k"] for row in chosen})
        body = []
        for method in dict.fromkeys(row["method"] for row in chosen):
            line = [summary.NAMES[method]]
            for k in counts:
                ours = [row["accuracy"] for row in chosen if (row["method"], row["k"]) == (method, k)]
                theirs = summary.TABLE_3.get(data, {}).get(method, {}).get(k)
                line += [_mean(ours), f"{theirs:g}" if theirs else "-"]
            body.append(line)
        used = ", ".join(dict.fromkeys(map(net_name, chosen)))
        header = [f"{data}, {used}: accuracy, %", *chain.from_iterable((f"k = {k}", "paper") for k in counts)]
        parts.append(summary.markdown(header, body))
    return "\n".join(parts)


def table_4(rows: Sequence[dict[str, Any]]) -> str:
    """The paper's table 4: what training took, a mean over k and the seeds, and the paper's seconds."""
    body = []
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        chosen = [row for row in rows if (row["data"], row["method"]) == (data, method)]
        theirs = summary.TABLE_4.get(data, {}).get(method)
        body.append(
            [
                data,
                summary.NAMES[method],
                _mean([row["seconds_per_epoch"] for row in chosen]),
                f"{theirs:g}" if theirs else "-",
                _mean([1e3 * row["seconds_per_query"] for row in chosen]),
                _mean([row["seconds_per_epoch"] * row["epochs"] / 60 for row in chosen]),
            ]
        )
    return summary.markdown(["data", "method", "s/epoch", "paper", "ms/query", "training minutes"], body)


def net_name(row: dict[str, Any]) -> str:
    """The net's name, with what it is wide."""
    return f"{row['net']}-{row['width']}" if row["net"] == "resnet9" else str(row["net"])


def _mean(values: Sequence[float]) -> str:
    """With the standard deviation, where there are several."""
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """A line for each cell: ours beside the paper's."""
    header = ["data", "method", "k", "net", "seed", "epochs", "accuracy %", "paper", "valid. %", "sigma"]
    header += ["s/epoch", "ms/query"]
    body = []
    for row in rows:
        theirs = summary.TABLE_3.get(row["data"], {}).get(row["method"], {}).get(row["k"])
        body.append(
            [
                row["data"],
                row["method"],
                str(row["k"]),
                net_name(row),
                str(row["seed"]),
                str(row["epochs"]),
                f"{row['accuracy']:.2f}",
                f"{theirs:g}" if theirs else "-",
                f"{row['validation_accuracy']:.2f}",
                f"{row['sigma']:.3f}",
                f"{row['seconds_per_epoch']:.1f}",
                f"{1e3 * row['seconds_per_query']:.2f}",
            ]
        )
    return header, body


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """Learning curves: training loss, validation accuracy and the share of images that need a backward pass.

    A line of panels for each data set and k, a colour for each method; of several seeds, the mean and the range.
    """
    colors = dict(zip(neighbors.METHODS, figures.COLORS, strict=True))
    curves: dict[tuple[str, int], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        curves[row["data"], row["k"]][row["method"]].append(row["curve"])
    figure, axes = figures.panels(len(CURVES), len(curves), height=3.4 if len(curves) == 1 else 2.6)
    for axis, (((data, k), methods), (name, label)) in zip(axes, product(curves.items(), CURVES.items()), strict=True):
        for method, seeds in methods.items():
            epochs = [point["epoch"] for point in seeds[0]]
            values = [[point[name] for point in points] for points in zip(*seeds, strict=True)]
            mean = [statistics.fmean(each) for each in values]
            axis.plot(epochs, mean, color=colors[method], linewidth=1.2, label=summary.NAMES[method])
            if len(seeds) > 1:
                low, high = [min(each) for each in values], [max(each) for each in values]
                axis.fill_between(epochs, low, high, color=colors[method], alpha=0.15, linewidth=0)
        axis.xaxis.get_major_locator().set_params(integer=True)
        place = axis.get_subplotspec()
        if place.is_first_row():
            axis.set_title(label, fontsize=10)
        if place.is_last_row():
            axis.set_xlabel("epoch", fontsize=9)
        if place.is_first_col():
            axis.set_ylabel(f"{data}, k = {k}", fontsize=10)
    shown = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def _write(folder: Path, rows: list[dict[str, Any]]) -> None:
    flat = [{name: value for name, value in row.items() if name != "curve"} for row in rows]
    write_atomically(folder / "rows.csv", to_csv(flat))
    points = [
        {name: row[name] for name in ("data", "method", "k", "seed")} | point for row in rows for point in row["curve"]
    ]
    write_atomically(folder / "curves.csv", to_csv(points))
    figures.save(draw(rows), folder / "curves")
    commits = sorted({commit for row in rows for commit in row["code"].split(", ")})
    facts = (
        f"- command: `directloss {shlex.join(sys.argv[1:])}`\n"
        f"- commits of the rows: {', '.join(commits)}; of this table: {code_version()}\n"
        f"- seeds: {', '.join(sorted({str(row['seed']) for row in rows}))}\n"
        f"- machine: {summary.machine()}\n"
        f"- training time: {sum(row['seconds_per_epoch'] * row['epochs'] for row in rows) / 3600:.2f} hours\n"
    )
    parts = (facts, table_3(rows), table_4(rows), summary.markdown(*table(rows)))
    write_atomically(folder / "table.md", "\n".join(parts))


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    header, body = table(rows)
    columns = list(zip(header, *body, strict=True))
    setting = ("data", "net", "seed", "epochs")
    shared = [column for column in columns if column[0] in setting and len({*column[1:]}) == 1]
    facts = ", ".join(f"{name} {value}" for name, value, *_ in shared)
    shown = Table(title="k nearest neighbours: ours beside the paper's (tables 3 and 4)", caption=facts or None)
    kept = [column for column in columns if column not in shared]
    for name, *_ in kept:
        shown.add_column(name, justify="left" if name in ("data", "method", "net") else "right", overflow="fold")
    for line in zip(*(values for _, *values in kept), strict=True):
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 150).print(shown)


@contextmanager
def _progress(cell: neighbors.Config, visible: bool) -> Iterator[tuple[Any, Any]]:
    """A bar over all steps of a cell, with the accuracy so far and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    name = f"{cell.data} {cell.method} k={cell.k}"
    with Progress(*columns, *times, console=Console(stderr=True), disable=not visible) as bar:
        task = bar.add_task(name, total=cell.epochs)

        def on_step(epoch: int, done: int, total: int) -> None:
            bar.update(task, completed=epoch + done / total)

        def on_epoch(point: dict[str, float]) -> None:
            if not bar.tasks[task].completed:  # from a checkpoint
                bar.reset(task, completed=int(point["epoch"]))
            bar.update(task, description=f"{name}: {100 * point['validation_accuracy']:.2f} % valid.")

        yield on_step, on_epoch
