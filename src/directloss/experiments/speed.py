"""Speed, table 2 of the paper: what the scripts in ``benchmarks/`` saved, the last run of each."""

from collections.abc import Sequence
from typing import Any

from directloss.experiments.neighbor_recipes import METHODS
from directloss.experiments.sorting import TABLE_2
from directloss.lab.report.build import Section, Source
from directloss.lab.store import Row
from directloss.lab.table import Column, Line, Table, grouped, join


def _paper(method: str) -> Any:
    def theirs(line: Line) -> str | None:
        seconds = TABLE_2[method].get(line["size"])
        return f"{1e3 * seconds:.0f} (K80)" if seconds else None

    return theirs


def _ratio(name: str) -> Column:
    return Column(
        f"_{name}", "over ours", len, lambda line: f"{line[name] / line['ours_ms']:.1f} × our DSL", below=True
    )


def _query(method: str) -> Column:
    def show(line: Line) -> str:
        seconds = line["seconds_per_query"]
        return f"{1e3 * seconds[method]:.2f} ({seconds[method] / seconds['dsl']:.2f})" if method in seconds else "-"

    return Column(f"_{method}", method, len, show)


TABLES = {
    "sorting": (
        "Milliseconds for one epoch of one repetition",
        (
            Column("size", "d"),
            Column("ours_ms", "DSL, ours", None, "{:.2f}", _paper("dsl")),
            Column("sinkhorn_ms", "Gumbel-Sinkhorn, ours", None, "{:.1f}", _paper("gumbel-sinkhorn")),
            _ratio("sinkhorn_ms"),
            Column("plain_ms", "DSL, plain step with SciPy", None, "{:.1f}"),
            _ratio("plain_ms"),
        ),
    ),
    "matching": (
        "Time of two SciPy solves over that of our pair, geometric mean over eight kinds of work, one thread",
        (
            Column("size", "d"),
            Column("_unrelated", "cost", lambda rows: "of other numbers" if rows[0]["unrelated"] else "of the same"),
            Column("scipy_mean", "SciPy / ours", None, "{:.1f}"),
            Column("scipy_least", "least", None, "{:.1f}"),
        ),
    ),
    "neighbors": (
        "Milliseconds for each query of a training step (over DSL's)",
        (
            Column("data", "data"),
            Column("k", "k"),
            Column("size", "candidates"),
            Column("batch", "batches of recipe"),
            Column("seconds_per_query", ""),
            *map(_query, METHODS),
        ),
    ),
}


def _options(row: Row) -> str:
    options = f"--data {row['data']} --k {row['k']}" if row["benchmark"] == "neighbors" else ""
    return f"{options}{' --unrelated' if row.config.get('unrelated') else ''}"


def section(rows: Sequence[Row]) -> Section:
    """Tables of the benchmarks, and where their numbers come from."""
    last: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row.finished):
        if row.config.get("benchmark") in TABLES:
            names = ("benchmark", "unrelated", "size", "data", "batch", "k")
            last[tuple(str(row.config.get(name, "")) for name in names)] = row
    found = sorted(last.values(), key=lambda row: (row["benchmark"], row.config.get("unrelated", False), row["size"]))
    tables, sources = [], []
    for name, (title, columns) in TABLES.items():
        mine = [row for row in found if row["benchmark"] == name]
        if mine:
            tables.append(Table.of(title, columns, [[row] for row in mine]))
        for (options, commit, spread), alike in grouped(
            mine, lambda row: (_options(row), row["commit"], row["spread"])
        ).items():
            sizes = f" --sizes {join(row['size'] for row in alike)}" if name != "neighbors" else ""
            command = f"python benchmarks/{name}.py{sizes} {options}".rstrip() + " --store STORE"
            seeds = join((row["seed"] for row in alike), ", ")
            sources.append(Source(f"{name} {options}".strip(), command, seeds, commit, spread))
    return Section(
        "speed",
        "Table 2: speed",
        "Ratios are measured side by side in one process. A repetition is trained in a stack with others, so its time "
        "is the stack's over their number.",
        "python benchmarks/sorting.py",
        tables,
        sources=sources,
        left_out=[f"Not shown: {len(rows) - len(found):,} older runs."] if len(rows) > len(found) else [],
    )
