"""``directloss report``: everything a store holds as one self-contained page.

A section turns rows of the store into tables and figures, with where each number comes from. A section whose
experiment is not in the store names the command that makes it.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss import __version__
from directloss.errors import UserError
from directloss.experiments import (
    audit_command,
    distribution,
    dynamics,
    figures,
    knn_command,
    neighbors,
    sorting,
    summary,
)
from directloss.files import write_atomically
from directloss.runs import Store, code_version, config_hash

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One number of a table: what is shown large, and the lines shown small below it."""

    main: str
    small: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    caption: str
    header: Sequence[str]
    body: Sequence[tuple[str, Sequence[Cell]]]  # each row: its name and its cells


@dataclass(frozen=True)
class Source:
    """Where numbers come from."""

    what: str
    command: str
    seed: str
    commit: str
    spread: str


@dataclass(frozen=True)
class Section:
    """A heading with tables and figures, or the command that would fill it."""

    key: str
    title: str
    text: str
    missing: str  # the command to run
    tables: Sequence[Table] = ()
    figures: Sequence[tuple[str, str]] = ()  # SVG and its caption
    sources: Sequence[Source] = field(default_factory=list)
    note: str = ""


def build(store: Path, output: Path) -> None:
    """Write the page. Nothing is written where the store is none of ours, or empty."""
    if os.path.isdir(output):  # unlike Path's, false where a path cannot be looked at
        raise UserError(f"{output} is a folder; give --output a file, e.g. {output / 'report.html'}")
    if os.path.exists(output) and os.path.exists(store) and os.path.samefile(output, store):
        raise UserError(f"--output {output} is the store itself; give another file, e.g. report.html")
    rows: dict[str, Rows] = defaultdict(list)
    with closing(Store(store, create=False)) as saved:
        for row in saved.rows():
            rows[row["experiment"]].append(row)
    if not rows:
        raise UserError(f"{store} holds no results yet; run an experiment with --store {store}")
    sections = [make(rows) for make in SECTIONS]
    write_atomically(output, render(sections))
    missing = [section.title for section in sections if not section.sources]
    print(f"Wrote {output}" + (f"; not in {store}: {', '.join(missing)}" if missing else ""))


def render(sections: Sequence[Section]) -> str:
    """The page as text."""
    import jinja2

    here = files("directloss.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["inline"] = lambda name: here.joinpath(name).read_text(encoding="utf-8")
    return environment.get_template("report.html").render(
        sections=sections,
        version=__version__,
        commit=code_version(),
        machine=summary.machine(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


def sorting_section(rows: dict[str, Rows]) -> Section:
    """Table 1, a table for each recipe and seed."""
    cells: dict[tuple[str, int], Rows] = defaultdict(list)
    for row in filter(_is_the_recipes, rows["sorting"]):
        cells[row["recipe"], row["seed"]].append(row)
    recipes = list(sorting.RECIPES)
    tables: list[Table] = []
    sources: list[Source] = []
    for recipe, seed in sorted(cells, key=lambda cell: (recipes.index(cell[0]), cell[1])):
        group = cells[recipe, seed]
        lines = {(line["method"], line["size"]): line for line in summary.summarize_sorting(group)}
        methods = [name for name in sorting.METHODS if any(method == name for method, _ in lines)]
        sizes = sorted({size for _, size in lines})
        body = [
            (f"d = {size}", [_sorting_cell(lines.get((name, size)), name, size) for name in methods]) for size in sizes
        ]
        caption = f"Recipe {recipe}, seed {seed}: % sorted perfectly"
        tables.append(Table(caption, [summary.NAMES[name] for name in methods], body))
        for name in methods:
            sources += _sorting_sources(recipe, seed, name, [row for row in group if row["method"] == name])
    others = len(rows["sorting"]) - sum(map(len, cells.values()))
    return Section(
        "sorting",
        "Table 1: learning to sort by matching",
        "A network learns to sort d numbers from ten example sequences, as a matching of numbers to positions. Each "
        "repetition is tested on one fresh sequence. In each cell: the share that is sorted perfectly, the paper's "
        "figure, the 95 % interval with the number of repetitions, and the mean share of misplaced entries.",
        "directloss sort --recipe paper",
        tables,
        sources=sources,
        note=f"Not shown: {others:,} repetitions with other options than the recipes'." if others else "",
    )


def _is_the_recipes(row: dict[str, Any]) -> bool:
    """Whether a row's configuration is its recipe's own, with nothing replaced."""
    make = sorting.RECIPES.get(row["recipe"])
    if make is None or row["method"] not in sorting.METHODS:
        return False
    return bool(row["config_hash"] == config_hash("sorting", asdict(make(row["method"], row["size"], row["seed"]))))


def _sorting_sources(recipe: str, seed: int, method: str, rows: Rows) -> list[Source]:
    """A source for all sizes that have as many repetitions of the same commits."""
    runs: dict[tuple[int, str], list[int]] = defaultdict(list)
    for size in sorted({row["size"] for row in rows}):
        mine = [row for row in rows if row["size"] == size]
        runs[max(row["repetition"] for row in mine) + 1, _list((row["code"] for row in mine), ", ")].append(size)
    return [
        Source(
            f"{recipe}, {summary.NAMES[method]}, d = {_list(sizes, ', ')}",
            f"directloss sort --recipe {recipe} --methods {method} --sizes {_list(sizes)} "
            f"--repetitions {repetitions} --seed {seed}",
            str(seed),
            commits,
            "95 % Wilson interval over repetitions",
        )
        for (repetitions, commits), sizes in runs.items()
    ]


def _sorting_cell(line: dict[str, Any] | None, method: str, size: int) -> Cell:
    theirs = summary.TABLE_1.get(method, {}).get(size)
    paper = f"paper {theirs[0]:g}" if theirs else "not in the paper"
    if line is None:
        return Cell("–", [paper])
    low, high = summary.wilson(round(line["perfect"] * line["repetitions"] / 100), line["repetitions"])
    return Cell(
        f"{line['perfect']:.1f}",
        [
            paper,
            f"{100 * low:.1f}–{100 * high:.1f}, n = {line['repetitions']}",
            f"misplaced {line['wrong_mean']:.2f} %",
        ],
    )


def speed_section(rows: dict[str, Rows]) -> Section:
    """Table 2 and the solvers' ratios, from the last run of each benchmark."""
    last: dict[tuple[str, bool, int], dict[str, Any]] = {}
    for row in sorted(rows["speed"], key=lambda row: row["finished"]):
        last[row["benchmark"], row.get("unrelated", False), row["size"]] = row
    found = [last[key] for key in sorted(last)]
    training = [row for row in found if row["benchmark"] == "sorting"]
    solvers = [row for row in found if row["benchmark"] == "matching"]
    tables = []
    if training:
        body = [
            (
                f"d = {row['size']}",
                [
                    Cell(f"{row['ours_ms']:.2f}", _their_time("dsl", row["size"])),
                    Cell(
                        f"{row['sinkhorn_ms']:.1f}",
                        [
                            f"{row['sinkhorn_ms'] / row['ours_ms']:.1f} × our DSL",
                            *_their_time("gumbel-sinkhorn", row["size"]),
                        ],
                    ),
                    Cell(f"{row['plain_ms']:.1f}", [f"{row['plain_ms'] / row['ours_ms']:.1f} × our DSL"]),
                ],
            )
            for row in training
        ]
        header = ("DSL, ours", "Gumbel-Sinkhorn, ours", "DSL, plain step with SciPy")
        tables.append(Table("Milliseconds for one epoch of one repetition", header, body))
    if solvers:
        ratios = {
            (row["size"], row["unrelated"]): Cell(f"{row['scipy_mean']:.1f}", [f"least {row['scipy_least']:.1f}"])
            for row in solvers
        }
        kinds = sorted({unrelated for _, unrelated in ratios})
        body = [
            (f"d = {size}", [ratios.get((size, unrelated), Cell("–")) for unrelated in kinds])
            for size in sorted({size for size, _ in ratios})
        ]
        tables.append(
            Table(
                "Time of two SciPy solves over that of our pair, geometric mean over eight kinds of work, one thread",
                ["cost of other numbers" if unrelated else "cost of the same numbers" for unrelated in kinds],
                body,
            )
        )
    runs: dict[tuple[str, bool, str, str], Rows] = defaultdict(list)
    for row in (*training, *solvers):
        runs[row["benchmark"], row.get("unrelated", False), row["commit"], row["spread"]].append(row)
    sources = [
        Source(
            f"{benchmark}, d = {_list((row['size'] for row in found), ', ')}" + ", other numbers" * unrelated,
            f"python benchmarks/{benchmark}.py --sizes {_list(row['size'] for row in found)}"
            + " --unrelated" * unrelated
            + " --store STORE",
            _list((row["seed"] for row in found), ", "),
            commit,
            spread,
        )
        for (benchmark, unrelated, commit, spread), found in runs.items()
    ]
    return Section(
        "speed",
        "Table 2: speed",
        "Ratios are measured side by side in one process. A repetition is trained in a stack with others, so its time "
        "is the stack's over their number.",
        "python benchmarks/sorting.py",
        tables,
        sources=sources,
    )


def _their_time(method: str, size: int) -> list[str]:
    seconds = summary.TABLE_2[method].get(size)
    return [f"paper {1e3 * seconds:.0f} (K80)"] if seconds else []


def neighbors_section(rows: dict[str, Rows]) -> Section:
    """Tables 3 and 4 and the learning curves, for each data set and seed."""
    groups: dict[tuple[str, str, int], Rows] = defaultdict(list)
    for row in sorted(rows["neighbors"], key=lambda row: row["epochs"]):  # of one cell, the longest training is shown
        groups[row["data"], row["recipe"], row["seed"]].append(row)
    tables: list[Table] = []
    drawn: list[tuple[str, str]] = []
    sources: list[Source] = []
    for (data, recipe, seed), group in sorted(groups.items()):
        counts = sorted({row["k"] for row in group})
        cells = {(row["method"], row["k"]): row for row in group}
        body = [
            (summary.NAMES[method], [_neighbors_cell(cells.get((method, k)), data, method, k) for k in counts])
            for method in neighbors.METHODS
            if any((method, k) in cells for k in counts)
        ]
        tables.append(
            Table(f"{data}, recipe {recipe}, seed {seed}: test accuracy, %", [f"k = {k}" for k in counts], body)
        )
        drawn.append(
            (
                _inline(knn_command.draw(group), f"neighbors{len(drawn)}"),
                f"Learning curves: {data}, recipe {recipe}, seed {seed}",
            )
        )
        sources += [
            Source(
                f"{data}, {row['method']}, k = {row['k']}",
                _knn_command(row),
                str(seed),
                row["code"],
                f"one training; the validation images chose epoch {row['best_epoch']} of {row['epochs']}",
            )
            for row in group
        ]
    return Section(
        "neighbors",
        "Tables 3 and 4: k nearest neighbours",
        "An embedding is learned so that the k nearest neighbours of an image carry its label. In each cell: the test "
        "accuracy by majority vote over the training images, the paper's, and what training took.",
        "directloss knn --data mnist --k 1,3,5,9",
        tables,
        drawn,
        sources,
    )


def _knn_command(row: dict[str, Any]) -> str:
    """The recipe's own, and what was asked for besides."""
    named = [row[name] for name in ("data", "method", "k", "net", "seed")]
    recipe = asdict(neighbors.RECIPES[row["recipe"]](*named))
    given = ("epochs", "candidates", "queries", "width", "epsilon")
    options = {"data": row["data"], "k": row["k"], "methods": row["method"], "net": row["net"]}
    options |= {"recipe": row["recipe"], "seed": row["seed"]}
    options |= {name: row[name] for name in given if row[name] != recipe[name]}
    return "directloss knn " + " ".join(f"--{name}={value}" for name, value in options.items())


def _neighbors_cell(row: dict[str, Any] | None, data: str, method: str, k: int) -> Cell:
    theirs = summary.TABLE_3.get(data, {}).get(method, {}).get(k)
    paper = f"paper {theirs:g}" if theirs else "not in the paper"
    if row is None:
        return Cell("-", [paper])
    net = row["net"] + (f"-{row['width']}" if row["net"] == "resnet9" else "")
    minutes = row["seconds_per_epoch"] * row["epochs"] / 60
    return Cell(
        f"{row['accuracy']:.2f}",
        [
            paper,
            f"{net}, {row['epochs']} epochs, {minutes:.0f} min",
            f"{1e3 * row['seconds_per_query']:.2f} ms a query",
        ],
    )


def distribution_section(rows: dict[str, Rows]) -> Section:
    """Figure 1, of the instances that the command takes."""
    saved = {row["config_hash"]: row for row in rows["distribution"]}
    keys = [config_hash("distribution", asdict(instance)) for instance in distribution.INSTANCES]
    found = [saved[key] for key in keys if key in saved]
    caption = "Probabilities over the noise's scale, and distances to Gibbs"
    return Section(
        "distribution",
        "Figure 1: what the noise does",
        "The probability of every structure as the scale of the noise grows: from one structure to all alike. With one "
        "Gumbel variable for each entry the distribution is not a Gibbs distribution, at no temperature.",
        "directloss distribution",
        figures=[(_inline(distribution.draw(found), "distribution"), caption)] if found else [],
        sources=[
            Source(
                row["structure"],
                "directloss distribution",
                str(row["seed"]),
                row["code"],
                f"standard error of a probability at most {max(point['error'] for point in row['points']):.4f}",
            )
            for row in found
        ],
    )


def dynamics_section(rows: dict[str, Rows]) -> Section:
    """Figure 3, a figure for each recipe, method, seed and length."""
    groups: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in sorted(rows["dynamics"], key=lambda row: (row["size"], row["epsilon"])):
        groups[tuple(row[name] for name in ("recipe", "method", "seed", "repetitions", "max_epochs"))].append(row)
    drawn, sources = [], []
    for number, key in enumerate(sorted(groups)):
        recipe, method, seed, repetitions, epochs = key
        spread = f"mean of {repetitions} repetitions"
        caption = f"Recipe {recipe}, {summary.NAMES[method]}, seed {seed}: {spread}"
        drawn.append((_inline(dynamics.draw(groups[key]), f"dynamics-{number}"), caption))
        for commit in sorted({row["code"] for row in groups[key]}):
            sizes = sorted({row["size"] for row in groups[key] if row["code"] == commit})
            command = f"directloss dynamics --sizes {_list(sizes)} --methods {method} --recipe {recipe}"
            command += f" --repetitions {repetitions} --epochs {epochs} --seed {seed}"
            what = f"{recipe}, {summary.NAMES[method]}, d = {_list(sizes, ', ')}"
            sources.append(Source(what, command, str(seed), commit, spread))
    return Section(
        "dynamics",
        "Figure 3: both signs of epsilon",
        "Loss, and the share of entries that the prediction and the loss-augmented prediction place rightly, while "
        "sorting is learned. Full lines: negative epsilon, towards better structures.",
        "directloss dynamics --sizes 10,100",
        figures=drawn,
        sources=sources,
    )


def audit_section(rows: dict[str, Rows]) -> Section:
    """The auditor's plots, and the orders of the bias."""
    tables, drawn, sources = [], [], []
    for number, row in enumerate(rows["audit"]):
        name = f"{row['structure']} of size {row['size']}" + f", k = {row['k']}" * (row["structure"] == "subset")
        figure = audit_command.draw(row["rows"])
        figure.set_size_inches(13.5, 7.2)  # drawn for a wider page than this one
        drawn.append((_inline(figure, f"audit-{number}"), f"Bias, deviation, cosine and zero gradients: {name}"))
        body = [
            (
                f"{slope['target']}, σ = {slope['scale']:g}, {slope['rule']}",
                [Cell(f"{slope['slope']:.2f}", [f"± {slope['error']:.2f}"])],
            )
            for slope in row["slopes"]
            if slope["slope"] is not None and slope["error"] is not None
        ]
        if body:
            caption = f"Order of the bias in epsilon (theory: 1 for one side, 2 for both): {name}"
            tables.append(Table(caption, ("order",), body))
        options = " ".join(
            f"--{option}={row[option]}"
            for option in ("structure", "size", "k", "scales", "epsilons", "samples", "repetitions", "seed")
            if row[option] != ""
        )
        sources.append(
            Source(
                name,
                f"directloss audit {options}",
                str(row["seed"]),
                row["code"],
                f"standard errors over {row['repetitions']:,} calls for each setting",
            )
        )
    return Section(
        "audit",
        "Is the gradient right?",
        "The estimator's gradients against exact ones, on instances small enough to enumerate every structure. "
        "The two-sided rule has a bias of second order in epsilon, and less variance.",
        "directloss audit",
        tables,
        drawn,
        sources,
    )


SECTIONS: tuple[Callable[[dict[str, Rows]], Section], ...] = (
    sorting_section,
    speed_section,
    dynamics_section,
    neighbors_section,
    audit_section,
    distribution_section,
)


def _inline(figure: "Figure", key: str) -> str:
    """The figure as SVG with ids of its own, because all figures share the page's, and without what is not drawn."""
    svg = figures.to_inline_svg(figure)
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", svg)


def _list(values: Iterable[Any], separator: str = ",") -> str:
    return separator.join(map(str, sorted(set(values))))
