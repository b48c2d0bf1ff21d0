"""``directloss sort``: options to cells, cells to rows, rows to tables and figures."""

import json
import math
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from directloss.errors import UserError
from directloss.experiments import sorting, summary
from directloss.experiments.results_command import to_csv
from directloss.files import write_atomically
from directloss.runs import Workers, code_version, config_hash, open_store


@dataclass(frozen=True)
class Options:
    """What ``directloss sort`` was asked for. None leaves a choice to the recipe."""

    sizes: str | list[int] = "5,10,25,40,60,100"
    methods: str | list[str] = "direct0,direct1,dsl,gumbel-sinkhorn"
    recipe: str = "paper"
    repetitions: int = 200
    seed: int = 0
    cost: str | None = None
    samples: int | None = None
    epsilon: float | None = None
    epochs: int | None = None
    fresh: bool = False
    jobs: int = 1
    threads: int = 1
    executor: Literal["local", "dask"] = "local"
    address: str | None = None
    store: str = "directloss.sqlite"
    output: str | None = None
    json: bool = False


def read_options(given: dict[str, Any], config: Path | None) -> Options:
    """The command line over the file's [sort] table over the defaults."""
    layers: dict[str, Any] = {}
    if config is not None:
        try:
            layers = tomllib.loads(config.read_text()).get("sort", {})
        except OSError as error:
            raise UserError(f"cannot read {config}: {error.strerror}; give --config an existing file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{config} is not valid TOML: {error}") from None
        _check_types(layers, config)
    return Options(**{**layers, **{name: value for name, value in given.items() if value is not None}})


def _check_types(layers: Any, config: Path) -> None:
    """Raise where a file sets what is no option, or to what is no value of it."""
    if not isinstance(layers, dict):
        raise UserError(f"{config} sets sort = {layers!r}; expected a table, [sort], with options below it")
    hints = get_type_hints(Options)
    for name, value in layers.items():
        if name not in hints:
            raise UserError(f"{config} sets the unknown option {name}; see directloss sort --help")
        parts = value if isinstance(value, list) else [value]
        kinds = {kind for part in get_args(hints[name]) or (hints[name],) for kind in (get_args(part) or (part,))}
        kinds = {kind if isinstance(kind, type) else str for kind in kinds}
        listed = isinstance(value, list) and not any(get_origin(part) is list for part in get_args(hints[name]))
        if listed or not all(type(part) in kinds or (type(part) is int and float in kinds) for part in parts):
            raise UserError(f"{config} sets {name} = {value!r}; expected {hints[name]}")


def read_cells(options: Options) -> list[sorting.Config]:
    """The configuration of every cell, all choices checked before anything is written."""
    sizes = split_numbers("--sizes", options.sizes)
    for size in sizes:
        if size < 2:
            raise UserError(f"--sizes has {size}; there is nothing to sort below 2")
    methods = split_list("--methods", options.methods)
    for method in methods:
        one_of("--methods", method, sorting.METHODS)
    one_of("--recipe", options.recipe, sorting.RECIPES)
    one_of("--executor", options.executor, ("local", "dask"))
    for name in ("repetitions", "jobs", "threads"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} is {getattr(options, name)}; expected at least 1")
    if options.cost is not None:
        one_of("--cost", options.cost, sorting.COSTS)
    for name in ("samples", "epochs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; expected at least 1")
    if options.epsilon is not None and (options.epsilon == 0 or not math.isfinite(options.epsilon)):
        raise UserError(f"--epsilon is {options.epsilon}; expected a finite number other than 0")
    if options.seed < 0:
        raise UserError(f"--seed is {options.seed}; expected 0 or more")
    overrides = {name: getattr(options, name) for name in ("cost", "samples", "epsilon")}
    overrides["max_epochs"] = options.epochs
    overrides["limit"] = None if options.epsilon is None else 100 * abs(options.epsilon)
    overrides = {name: value for name, value in overrides.items() if value is not None}
    make = sorting.RECIPES[options.recipe]
    cells = [make(method, size, options.seed) for method in methods for size in sizes]
    return [replace(cell, fresh=options.fresh, **overrides) for cell in cells]


def run(given: dict[str, Any], config: Path | None) -> None:
    """The whole command."""
    options = read_options(given, config)
    cells = read_cells(options)
    workers = Workers(options.jobs, options.threads, options.executor, options.address)
    workers.check()
    store = open_store(Path(options.store), *([Path(options.output)] if options.output else []))
    with _progress(cells, options.repetitions, sys.stderr.isatty()) as advance:
        sorting.sweep(cells, options.repetitions, store, workers, advance)
    rows = [
        row
        for cell in cells
        for row in store.rows("sorting", config_hash("sorting", asdict(cell)))
        if row["repetition"] < options.repetitions
    ]
    lines = summary.summarize_sorting(rows)
    if options.output:
        _write(Path(options.output), rows, lines)
    if options.json:
        print(json.dumps(lines))
        return
    _show(lines)
    print(f"Rows: {store.path}" + (f", tables: {options.output}" if options.output else ""))


def _show(lines: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    header, body = summary.sorting_cells(lines)
    table = Table(title="Learning to sort by matching: ours beside the paper's (table 1)")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for cells, following in zip(body, [*body[1:], [""]], strict=True):
        table.add_row(*cells, end_section=cells[0] != following[0])
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def _write(folder: Path, rows: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
    """The rows as CSV and the table as Markdown, with what is needed to make them again."""
    rows = sorted(rows, key=lambda row: (row["method"], row["size"], row["repetition"]))
    write_atomically(folder / "rows.csv", to_csv(rows))
    hours = sum(row["seconds"] for row in rows) / 3600
    facts = (
        f"- command: `directloss {shlex.join(sys.argv[1:])}`\n"
        f"- commit of the rows: {', '.join(sorted({row['code'] for row in rows}))}; of this table: {code_version()}\n"
        f"- seed: {rows[0]['seed']}; spread: 95 % Wilson interval, standard deviation over repetitions\n"
        f"- machine: {summary.machine()}\n"
        f"- training time, all repetitions: {hours:.2f} core hours\n\n"
    )
    write_atomically(folder / "table.md", facts + summary.markdown(*summary.sorting_cells(lines)))


@contextmanager
def _progress(
    cells: list[sorting.Config], repetitions: int, visible: bool
) -> Iterator[Callable[[sorting.Config, int], None]]:
    """A bar over all repetitions, weighted with what each costs, with the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False))
    done: dict[sorting.Config, int] = dict.fromkeys(cells, 0)
    with Progress(*columns, *times, console=Console(stderr=True), disable=not visible) as bar:
        task = bar.add_task("sorting", total=sum(repetitions * _weight(cell) for cell in cells))

        def advance(cell: sorting.Config, count: int) -> None:
            done[cell] += count
            what = f"{cell.method} d={cell.size}: {done[cell]}/{repetitions}"
            bar.update(task, advance=count * _weight(cell), description=what)

        yield advance


def _weight(cell: sorting.Config) -> float:
    """What a repetition of a cell costs, roughly."""
    relative = 10.0 if cell.method == "gumbel-sinkhorn" else 1.0
    return relative * cell.size * cell.size * cell.samples * cell.max_epochs


def split_list(option: str, value: str | list[Any]) -> list[Any]:
    """The parts of "a,b", each once, in their order."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not parts:
        raise UserError(f"{option} is empty; give one or more, with commas")
    return list(dict.fromkeys(parts))


def split_numbers(option: str, value: str | list[Any]) -> list[int]:
    """Whole numbers from "5,10,25"."""

    def number(part: Any) -> int:
        try:
            return int(part)
        except (TypeError, ValueError):
            raise UserError(f"{option} has {part!r}; expected whole numbers with commas, e.g. 5,10,25") from None

    return [number(part) for part in split_list(option, value)]


def one_of(option: str, value: str, allowed: Any) -> None:
    """Raise where a choice is none of the allowed."""
    if value not in allowed:
        raise UserError(f"{option} has {value!r}; choose from {', '.join(allowed)}")
