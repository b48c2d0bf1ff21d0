"""Tables 3 and 4: k nearest neighbours."""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from directloss.experiments import knn_command, neighbors, summary
from directloss.report.parts import Cell, Rows, Section, Source, Table, inline


def neighbors_section(rows: dict[str, Rows]) -> Section:
    """Tables 3 and 4 and the learning curves, for each data set and seed."""
    groups: dict[tuple[str, str, int], Rows] = defaultdict(list)
    # Of one cell, the longest training is shown, and of equal ones the last.
    longest = {
        (row["data"], row["recipe"], row["seed"], row["method"], row["k"]): row
        for row in sorted(rows["neighbors"], key=lambda row: (row["epochs"], row["finished"]))
    }
    for row in sorted(longest.values(), key=lambda row: (neighbors.METHODS.index(row["method"]), row["k"])):
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
                inline(knn_command.draw(group), f"neighbors{len(drawn)}"),
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
        "accuracy by majority vote over the training images, the paper's, and what training took.",
        "directloss knn --data mnist --k 1,3,5,9",
        tables,
        drawn,
        sources,
    )


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
    given = ("epochs", "candidates", "queries", "width", "epsilon")
    options = {"data": row["data"], "k": row["k"], "methods": row["method"], "net": row["net"]}
    options |= {"recipe": row["recipe"], "seed": row["seed"]}
    options |= {name: row[name] for name in given if row[name] != recipe[name]}
    return "directloss knn " + " ".join(f"--{name}={value}" for name, value in options.items())


def _neighbors_cell(row: dict[str, Any] | None, data: str, method: str, k: int) -> Cell:
    theirs = summary.TABLE_3.get(data, {}).get(method, {}).get(k)
    paper = f"paper {theirs:g}" if theirs else "not in the paper"
    if row is None:
        return Cell("–", [paper])
    minutes = row["seconds_per_epoch"] * row["epochs"] / 60
    return Cell(
        f"{row['accuracy']:.2f}",
        [
            paper,
            f"{knn_command.net_name(row)}, {row['epochs']} epochs, {minutes:.0f} min",
            f"{1e3 * row['seconds_per_query']:.2f} ms a query",
        ],
    )
