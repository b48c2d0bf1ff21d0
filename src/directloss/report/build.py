"""``directloss report``: everything a store holds as one self-contained page.

A section turns rows of the store into tables and figures, with where each number comes from. A section whose
experiment is not in the store names the command that makes it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from directloss import __version__
from directloss.errors import UserError
from directloss.experiments import audit_command, distribution, dynamics, figures, sorting, summary
from directloss.files import write_atomically
from directloss.runs import Store, code_version, config_hash

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
    figures: Sequence[tuple[str, str]] = ()  # SVG and its description
    sources: Sequence[Source] = field(default_factory=list)


def build(store: Path, output: Path) -> None:
    """Write the page. Nothing is written where the store is none of ours, or empty."""
    if output.is_dir():
        raise UserError(f"{output} is a folder; give --output a file, e.g. {output / 'report.html'}")
    rows: dict[str, Rows] = defaultdict(list)
    for row in Store(store, create=False).rows():
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
    for row in rows["sorting"]:
        make = sorting.RECIPES.get(row["recipe"])
        if make and row["config_hash"] == _hash(make(row["method"], row["size"], row["seed"])):
            cells[row["recipe"], row["seed"]].append(row)
    tables, sources = [], []
    for (recipe, seed), group in sorted(cells.items(), reverse=True):
        lines = {(line["method"], line["size"]): line for line in summary.summarize_sorting(group)}
        methods = [name for name in sorting.METHODS if any(method == name for method, _ in lines)]
        sizes = sorted({size for _, size in lines})
        body = [
            (f"d = {size}", [_sorting_cell(lines.get((name, size)), name, size) for name in methods]) for size in sizes
        ]
        caption = f"Recipe {recipe}, seed {seed}: perfectly sorted test sequences, %"
        tables.append(Table(caption, [summary.NAMES[name] for name in methods], body))
        for name in methods:
            mine = [row for row in group if row["method"] == name]
            sources.append(
                Source(
                    f"{recipe}, {name}",
                    f"directloss sort --recipe {recipe} --methods {name} --sizes {_list(row['size'] for row in mine)} "
                    f"--repetitions {max(row['repetition'] for row in mine) + 1} --seed {seed}",
                    str(seed),
                    _list(row["code"] for row in mine),
                    "95 % Wilson interval over repetitions",
                )
            )
    return Section(
        "sorting",
        "Table 1: learning to sort by matching",
        "A network learns to sort d numbers from ten example sequences, as a matching of numbers to positions. Each "
        "repetition is tested on one fresh sequence. In each cell: the share that is sorted perfectly, its 95 % "
        "interval and the number of repetitions, the mean share of misplaced entries, and the paper's figure.",
        "directloss sort --recipe paper",
        tables,
        sources=sources,
    )


def _sorting_cell(line: dict[str, Any] | None, method: str, size: int) -> Cell:
    theirs = summary.TABLE_1.get(method, {}).get(size)
    paper = f"paper {theirs[0]:g}" if theirs else "not in the paper"
    if line is None:
        return Cell("-", [paper])
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
    """Table 2 and the solvers' ratios, from the benchmarks."""
    training = sorted((row for row in rows["speed"] if row["benchmark"] == "sorting"), key=lambda row: row["size"])
    solvers = sorted((row for row in rows["speed"] if row["benchmark"] == "matching"), key=lambda row: row["size"])
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
        body = [
            (f"d = {row['size']}", [Cell(f"{row['scipy_mean']:.1f}", [f"least {row['scipy_least']:.1f}"])])
            for row in solvers
        ]
        caption = "Two SciPy solves over our pair, geometric mean over eight kinds of work, one thread"
        tables.append(Table(caption, ("SciPy / ours",), body))
    sources = [
        Source(
            f"{row['benchmark']}, d = {row['size']}",
            f"python benchmarks/{row['benchmark']}.py --sizes {row['size']} --store STORE",
            str(row["seed"]),
            row["commit"],
            row["spread"],
        )
        for row in (*training, *solvers)
    ]
    return Section(
        "speed",
        "Table 2: speed",
        "Ratios are measured side by side in one process. A repetition is trained in a stack with others, so its time "
        "is the stack's over their number.",
        "python benchmarks/sorting.py --store STORE",
        tables,
        sources=sources,
    )


def _their_time(method: str, size: int) -> list[str]:
    seconds = summary.TABLE_2[method].get(size)
    return [f"paper {1e3 * seconds:.0f} (K80)"] if seconds else []


def neighbors_section(rows: dict[str, Rows]) -> Section:
    """Tables 3 and 4."""
    return Section(
        "neighbors",
        "Tables 3 and 4: k nearest neighbours",
        "An embedding is learned so that the k nearest neighbours of an image carry its label.",
        "directloss knn --data mnist --k 1,3,5,9",
    )


def distribution_section(rows: dict[str, Rows]) -> Section:
    """Figure 1."""
    found = sorted(rows["distribution"], key=lambda row: (row["structure"], row["size"]))
    worst = max((point["error"] for row in found for point in row["points"]), default=0.0)
    return Section(
        "distribution",
        "Figure 1: what the noise does",
        "The probability of every structure as the scale of the noise grows: from one structure to all alike. With one "
        "Gumbel variable for each entry the distribution is not a Gibbs distribution, at no temperature.",
        "directloss distribution",
        figures=[(figures.to_inline_svg(distribution.draw(found)), "Probabilities over sigma, and distances to Gibbs")]
        if found
        else [],
        sources=[
            Source(
                row["structure"],
                "directloss distribution",
                str(row["seed"]),
                row["code"],
                f"probabilities within {worst:.4f} (standard error)",
            )
            for row in found
        ],
    )


def dynamics_section(rows: dict[str, Rows]) -> Section:
    """Figure 3."""
    found = rows["dynamics"]
    return Section(
        "dynamics",
        "Figure 3: both signs of epsilon",
        "Loss, and the share of entries that the prediction and the loss-augmented prediction place rightly, while "
        "sorting is learned. Full lines: negative epsilon, towards better structures.",
        "directloss dynamics --sizes 10,100",
        figures=[(figures.to_inline_svg(dynamics.draw(found)), "Loss and shares over epochs")] if found else [],
        sources=[
            Source(
                f"d = {row['size']}, ε = {row['epsilon']:g}",
                f"directloss dynamics --sizes {row['size']} --methods {row['method']} --recipe {row['recipe']} "
                f"--repetitions {row['repetitions']} --epochs {row['max_epochs']} --seed {row['seed']}",
                str(row["seed"]),
                row["code"],
                f"mean of {row['repetitions']} repetitions",
            )
            for row in found
        ],
    )


def audit_section(rows: dict[str, Rows]) -> Section:
    """The auditor's plots, and the orders of the bias."""
    tables, drawn, sources = [], [], []
    for row in rows["audit"]:
        name = f"{row['structure']} of size {row['size']}" + (
            f", k = {row['k']}" if row["structure"] == "subset" else ""
        )
        drawn.append(
            (
                figures.to_inline_svg(audit_command.draw(row["rows"])),
                f"Bias, deviation, cosine and zero gradients: {name}",
            )
        )
        slopes = [slope for slope in row["slopes"] if slope["slope"] is not None]
        body = [
            (
                f"{slope['target']}, σ = {slope['scale']:g}, {slope['rule']}",
                [Cell(f"{slope['slope']:.2f}", [f"± {slope['error']:.2f}"])],
            )
            for slope in slopes
        ]
        tables.append(
            Table(f"{name}: order of the bias in epsilon (theory: 1 for one side, 2 for both)", ("order",), body)
        )
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


def _hash(config: sorting.Config) -> str:
    return config_hash("sorting", asdict(config))


def _list(values: Iterable[Any]) -> str:
    return ",".join(map(str, sorted(set(values))))
