"""Tables 1 and 2 and figure 3: learning to sort, and how fast."""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from directloss.experiments import dynamics, sorting, summary
from directloss.report.parts import Cell, Rows, Section, Source, Table, inline, join
from directloss.runs import config_hash


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
        runs[max(row["repetition"] for row in mine) + 1, join((row["code"] for row in mine), ", ")].append(size)
    return [
        Source(
            f"{recipe}, {summary.NAMES[method]}, d = {join(sizes, ', ')}",
            f"directloss sort --recipe {recipe} --methods {method} --sizes {join(sizes)} "
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
            f"{benchmark}, d = {join((row['size'] for row in found), ', ')}" + ", other numbers" * unrelated,
            f"python benchmarks/{benchmark}.py --sizes {join(row['size'] for row in found)}"
            + " --unrelated" * unrelated
            + " --store STORE",
            join((row["seed"] for row in found), ", "),
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
        drawn.append((inline(dynamics.draw(groups[key]), f"dynamics-{number}"), caption))
        for commit in sorted({row["code"] for row in groups[key]}):
            sizes = sorted({row["size"] for row in groups[key] if row["code"] == commit})
            command = f"directloss dynamics --sizes {join(sizes)} --methods {method} --recipe {recipe}"
            command += f" --repetitions {repetitions} --epochs {epochs} --seed {seed}"
            what = f"{recipe}, {summary.NAMES[method]}, d = {join(sizes, ', ')}"
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
