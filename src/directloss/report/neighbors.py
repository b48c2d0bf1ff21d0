"""Tables 3 and 4: k nearest neighbours."""

import statistics
from collections import defaultdict
from dataclasses import asdict, fields
from typing import Any

from directloss.experiments import knn_command, neighbors, summary
from directloss.report.parts import Cell, Rows, Section, Source, Table, inline


def neighbors_section(rows: dict[str, Rows]) -> Section:
    """Tables 3 and 4 and the learning curves, for each data set."""
    tables: list[Table] = []
    drawn: list[tuple[str, str]] = []
    sources: list[Source] = []
    groups: dict[tuple[str, str], dict[tuple[str, int], Rows]] = defaultdict(dict)
    for (data, recipe, method, k), seeds in _longest(rows["neighbors"]).items():
        groups[data, recipe][method, k] = seeds
    for (data, recipe), cells in sorted(groups.items()):
        counts = sorted({k for _, k in cells})
        group = [row for seeds in cells.values() for row in seeds]
        body = [
            (summary.NAMES[method], [_neighbors_cell(cells.get((method, k), []), data, method, k) for k in counts])
            for method in dict.fromkeys(method for method, _ in cells)
        ]
        tables.append(Table(f"{data}, recipe {recipe}: test accuracy, %", [f"k = {k}" for k in counts], body))
        drawn.append(
            (inline(knn_command.draw(group), f"neighbors{len(drawn)}"), f"Learning curves: {data}, recipe {recipe}")
        )
        sources += [
            Source(
                f"{data}, {row['method']}, k = {row['k']}",
                _knn_command(row),
                str(row["seed"]),
                row["code"],
                f"one training; the validation images chose epoch {row['best_epoch']} of {row['epochs']}",
            )
            for row in group
        ]
    timed = {
        (row["data"], row["batch"], row["k"]): row
        for row in sorted(rows["speed"], key=lambda row: row["finished"])
        if row["benchmark"] == "neighbors"
    }
    if timed:
        tables.append(_speed_table(list(timed.values())))
        sources += [
            Source(
                f"speed, {row['data']}, batches of {row['batch']}",
                f"python benchmarks/neighbors.py --data {row['data']} --k {row['k']} --store STORE",
                str(row["seed"]),
                row["commit"],
                row["spread"],
            )
            for row in timed.values()
        ]
    return Section(
        "neighbors",
        "Tables 3 and 4: k nearest neighbours",
        "An embedding is learned so that the k nearest neighbours of an image carry its label. In each cell: the test "
        "accuracy by majority vote over the training images, with the standard deviation over the seeds if there are "
        "several, the paper's, and what training took.",
        "directloss knn --data mnist --k 1,3,5,9",
        tables,
        drawn,
        sources,
    )


def _longest(rows: Rows) -> dict[tuple[str, str, str, int], Rows]:
    """Of each data set, recipe, method and k, all seeds of the longest training; of equally long ones the last."""
    seeds: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["seed"]):
        seeds[tuple(row[field.name] for field in fields(neighbors.Config) if field.name != "seed")].append(row)
    trainings = sorted(seeds.values(), key=lambda alike: (alike[0]["epochs"], max(row["finished"] for row in alike)))
    found = {tuple(alike[0][name] for name in ("data", "recipe", "method", "k")): alike for alike in trainings}
    order = sorted(found, key=lambda cell: (neighbors.METHODS.index(cell[2]), cell[3]))
    return {cell: found[cell] for cell in order}


def _speed_table(rows: Rows) -> Table:
    """Milliseconds of a query, side by side in one process."""
    methods = [name for name in neighbors.METHODS if any(name in row["seconds_per_query"] for row in rows)]
    body = []
    for row in rows:
        seconds = row["seconds_per_query"]
        cells = [
            Cell(f"{1e3 * seconds[name]:.2f}", [f"{seconds[name] / seconds['dsl']:.2f} × DSL"])
            if name in seconds
            else Cell("–")
            for name in methods
        ]
        asked = "every image a query" if row["batch"] == "best" else "100 queries"
        body.append((f"{row['data']}, k = {row['k']}, {row['size']} candidates, {asked}", cells))
    return Table("Milliseconds for each query of a training step", [summary.NAMES[name] for name in methods], body)


def _knn_command(row: dict[str, Any]) -> str:
    """The recipe's own, and what was asked for besides."""
    named = [row[name] for name in ("data", "method", "k", "net", "seed")]
    recipe = asdict(neighbors.RECIPES[row["recipe"]](*named))
    options = {"data": row["data"], "k": row["k"], "methods": row["method"], "net": row["net"]}
    options |= {"recipe": row["recipe"], "seed": row["seed"]}
    options |= {name: row[name] for name in knn_command.OVERRIDES if row[name] != recipe[name]}
    return "directloss knn " + " ".join(f"--{name}={value}" for name, value in options.items())


def _neighbors_cell(rows: Rows, data: str, method: str, k: int) -> Cell:
    """The mean over the seeds."""
    theirs = summary.TABLE_3.get(data, {}).get(method, {}).get(k)
    paper = f"paper {theirs:g}" if theirs else "not in the paper"
    if not rows:
        return Cell("–", [paper])
    accuracies = [row["accuracy"] for row in rows]
    spread = [f"± {statistics.stdev(accuracies):.2f}, {len(rows)} seeds"] if len(rows) > 1 else []
    minutes = statistics.fmean(row["seconds_per_epoch"] * row["epochs"] / 60 for row in rows)
    return Cell(
        f"{statistics.fmean(accuracies):.2f}",
        [
            *spread,
            paper,
            f"{knn_command.net_name(rows[0])}, {rows[0]['epochs']} epochs, {minutes:.0f} min",
            f"{statistics.fmean(1e3 * row['seconds_per_query'] for row in rows):.2f} ms a query",
        ],
    )
