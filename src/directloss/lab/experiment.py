"""An experiment is declared once: configuration, recipes, training, columns and figures.

From the declaration follow its command, with ``--config``, ``--json``, ``--jobs`` and a store to resume from, its
table, its figures and its page of the report. ``experiments/`` holds ours; ``examples/my_experiment.py`` is a user's.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from directloss.errors import UserError
from directloss.lab.options import Option, digest_own, split
from directloss.lab.store import Key, Row
from directloss.lab.table import Column, Line, Table, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Iterable[tuple[int, dict[str, Any]]]  # repetitions and what they gave
Train = Callable[[Any, Sequence[int], "Context"], Results]


@dataclass(frozen=True)
class Context:
    """What a training may use besides its configuration."""

    threads: int | None = None
    checkpoint: Path = Path("checkpoint.pt")  # of this configuration alone
    settings: Mapping[str, Any] = field(default_factory=dict)  # the experiment's other options, e.g. data_dir
    progress: Callable[[float, str], None] = lambda done, note: None  # the share that is done, and a word about it


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def load(function: Any) -> Any:
    """The function, imported if it is named only: "module:function"."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Drawing:
    """A figure of rows."""

    name: str  # of its files
    caption: str
    draw: Callable[[Sequence[Any]], "Figure"]
    points: Callable[[Sequence[Any]], list[Line]]  # what it shows, as CSV


@dataclass(frozen=True)
class Experiment:
    """A declaration. Fields of ``config`` that are options are made with ``option(default, help, ...)``."""

    name: str  # in the store
    command: str
    title: str
    text: str  # a sentence or two for the command's help and the report
    config: type
    train: Train | str  # or "module:function", imported when it is needed
    columns: Sequence[Column]
    axes: Sequence[str] = ()  # fields whose options take several values, with commas; each combination is a cell
    recipes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # from axes to a configuration
    adjust: Callable[..., Any] = replace  # a configuration with what the command line overrides
    expand: Callable[[Any], Sequence[Any]] = lambda config: [config]
    check: Callable[[Sequence[Any], Context], None] | str = lambda cells, context: None  # before anything is written
    repetitions: int | None = None  # the command's default; None: a cell is one row
    stack: Callable[[Any], int] = lambda config: 1  # repetitions that are trained together
    weight: Callable[[Any], float] = lambda config: 1.0  # what a repetition costs, roughly
    settings: Mapping[str, tuple[type, Any, str]] = field(default_factory=dict)  # other options: type, default, help
    threads: int | None = None  # the command's default; None: torch's
    ranks: bool = False  # training may be shared by the processes of torchrun
    version: int = 1  # raise it if the same configuration gives other numbers than before
    lines: Callable[[Sequence[Any]], list[Line]] | None = None  # where a row has more than one line
    measured: Callable[[Any], Line] = lambda row: {}  # numbers in the lists of a row, for a row of CSV
    notes: Callable[[Sequence[Any]], list[str]] = lambda rows: []  # sentences below the table
    figures: Sequence[Drawing] = ()
    spread: Callable[[Sequence[Any]], str] = lambda rows: "one run"
    example: str = ""  # the options that the report names for what is missing
    # On a page, rows that differ in these fields, or in a name of yours, get tables and figures of their own.
    by: Sequence[str] | Callable[[Any], str] = ()
    over: str = ""  # tables also show means over this field, e.g. over seeds

    # from options to cells

    @cached_property
    def options(self) -> dict[str, tuple[Field[Any], Option, type]]:
        """By their names: the fields that are options, and their types."""
        hints = get_type_hints(self.config)
        found = {}
        for one in fields(self.config):
            if about := one.metadata.get("option"):
                kinds = [kind for kind in (get_args(hints[one.name]) or (hints[one.name],)) if isinstance(kind, type)]
                found[about.name or one.name] = (one, about, kinds[0] if kinds else str)
        return found

    def cells(self, **given: Any) -> list[Any]:
        """The configuration of every cell; all choices are checked before anything is written."""
        recipes = self.recipes or {"": self.config}
        recipe = given.get("recipe") or next(iter(recipes))
        Option("", of=lambda: recipes).check("recipe", recipe, listed=True)
        axes: dict[str, list[Any]] = {}
        overrides: dict[str, Any] = {}
        for name, (one, about, kind) in self.options.items():
            value = given.get(name)
            value = about.preset if value is None else value
            if one.name in self.axes:
                parts = split(name, kind, value)
                for part in parts:
                    about.check(name, part, listed=True)
                # However they are asked for, tables keep one order.
                axes[one.name] = sorted(parts, key=partial(self.position, one.name))
            elif value is not None:
                about.check(name, value)
                overrides[one.name] = value
        found: list[Any] = []
        for values in product(*(axes[name] for name in self.axes)):
            cell = dict(zip(self.axes, values, strict=True))
            found += self.expand(self._cell(recipes[recipe], cell, overrides))
        return found

    def _cell(self, recipe: Callable[..., Any], cell: dict[str, Any], overrides: dict[str, Any]) -> Any:
        named = inspect.signature(recipe).parameters
        given = cell | {name: value for name, value in overrides.items() if name in named}
        try:
            return self.adjust(recipe(**given), **overrides)
        except ValueError as error:
            raise UserError(str(error)) from None

    def position(self, name: str, value: Any) -> tuple[int, Any]:
        """Where a field's value stands in its declared order; others follow, sorted."""
        about = {one.name: about for one, about, _ in self.options.values()}.get(name)
        order = list(self.recipes) if name == "recipe" else list(about.of()) if about and about.of else []
        return (order.index(value), "") if value in order else (len(order), value)

    # from configurations to rows and back

    def key(self, config: Any) -> Key:
        chosen = asdict(config)
        own = [chosen[one.name] for one, about, _ in self.options.values() if about.own and ":" in chosen[one.name]]
        defaults = {one.name: one.default for one in fields(self.config) if one.default is not MISSING}
        return Key(self.name, chosen, defaults, self.version, digest_own(own))

    def parse(self, row: Row) -> Any:
        """The configuration of a stored row; ValueError if it is not one of this version's."""
        if row.version != self.version:
            raise ValueError(f"version {row.version} of {self.name}")
        if unknown := [name for name in row.config if name not in {one.name for one in fields(self.config)}]:
            raise ValueError(f"the unknown field {unknown[0]}")
        for one, about, _ in self.options.values():
            value = row.config.get(one.name, one.default)
            if about.of and value not in about.of() and not (about.own and ":" in str(value)):
                raise ValueError(f"the unknown {one.name} {value}")
        if row.config.get("recipe", next(iter(self.recipes), "")) not in (self.recipes or [""]):
            raise ValueError(f"the unknown recipe {row.config['recipe']}")
        try:
            found = self.config(**row.config)
            self.table([row], "").cells()
            for drawing in self.figures:
                drawing.points([row])
            return found
        except (TypeError, LookupError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f"what is not a result of {self.name} ({type(error).__name__}: {error})") from None

    # what tells configurations apart

    def command_options(self, config: Any) -> dict[str, Any]:
        """The options that ask for a configuration, besides those of the lab."""
        options, chosen = self.options, asdict(config)
        named = {name: chosen[one.name] for name, (one, _, _) in options.items() if one.name in self.axes}
        if len(self.recipes) > 1:
            named["recipe"] = config.recipe
        differing = self.changes(config)
        return named | {name: chosen[one.name] for name, (one, _, _) in options.items() if one.name in differing}

    def bases(self, config: Any) -> list[dict[str, Any]]:
        """What the recipe itself asks for, with this configuration's axes."""
        chosen = asdict(config)
        cell = {name: chosen[name] for name in self.axes}
        presets = {one.name: about.preset for one, about, _ in self.options.values() if about.preset is not None}
        overrides = {name: value for name, value in presets.items() if name not in cell}
        recipe = self.recipes[chosen.get("recipe", next(iter(self.recipes)))] if self.recipes else self.config
        return [asdict(base) for base in self.expand(self._cell(recipe, cell, overrides))]

    def changes(self, config: Any) -> dict[str, Any]:
        """The fields in which a configuration differs from the recipe's own."""
        differences = [{k: v for k, v in asdict(config).items() if base[k] != v} for base in self.bases(config)]
        return min(differences, key=len)

    def named_changes(self, config: Any) -> dict[str, Any]:
        """The same by the options' names."""
        names = {one.name: name for name, (one, _, _) in self.options.items()}
        return {names.get(name, name): value for name, value in self.changes(config).items()}

    def label(self, config: Any) -> str:
        """What tells a configuration from others of the experiment."""
        chosen, (first, *others) = asdict(config), self.bases(config)
        expanded = [name for name in chosen if any(base[name] != first[name] for base in others)]
        names = [*self.axes, *expanded]
        axes = [chosen[name] if isinstance(chosen[name], str) else f"{name} {_short(chosen[name])}" for name in names]
        recipe = [f"recipe {config.recipe}"] if len(self.recipes) > 1 else []
        return ", ".join(
            [*axes, *recipe, *(f"{name} {_short(value)}" for name, value in self.named_changes(config).items())]
        )

    # from rows to tables

    def table(self, rows: Sequence[Row], title: str, over: str = "") -> Table:
        """A line for each configuration, or for each that differs in more than ``over``."""
        if self.lines:
            return Table(title, self.columns, self.lines(rows))
        groups = grouped(
            rows, lambda row: str([row.methods, *sorted((k, v) for k, v in row.config.items() if k != over)])
        )
        options = Column("_options", "options", lambda rows: self._options(rows[0], over), setting=True)
        return Table.of(title, [*self.columns, options], groups.values())

    def _options(self, row: Row, over: str) -> str:
        shown = {column.name.strip("_") for column in self.columns if column.title}
        changes = self.named_changes(self.config(**row.config)).items()
        return ", ".join(f"{name} {_short(value)}" for name, value in changes if name not in shown and name != over)

    def tables(self, rows: Sequence[Row], title: str) -> list[Table]:
        """The table, before it the means over seeds if there are several of a configuration."""
        whole = self.table(rows, title)
        if not self.over:
            return [whole]
        means = self.table(rows, f"Means over {self.over}s", self.over)
        return [means, whole] if len(means.lines) < len(whole.lines) else [whole]

    # the command

    def signature(self) -> inspect.Signature:
        """The command's options, as a function's parameters."""
        from cyclopts import Parameter

        given: list[tuple[str, Any, str]] = []
        for name, (one, about, kind) in self.options.items():
            text = about.help
            if about.of is not None:
                text += f" Of {', '.join(about.of())}{' or your own, as module:name' if about.own else ''}."
            if about.preset not in (None, ""):
                text += f" Default {about.preset}."
            elif one.name not in self.axes and len(self.recipes) > 1:
                text += " Default: the recipe's."
            given.append((name, Annotated[str, list] if one.name in self.axes else kind, text))
        if len(self.recipes) > 1:
            given.append(("recipe", str, f"Of {', '.join(self.recipes)}. Default {next(iter(self.recipes))}."))
        if self.repetitions is not None:
            given.append(("repetitions", int, f"Trainings for each cell. Default {self.repetitions}."))
        given += [(name, kind, text) for name, (kind, _, text) in self.settings.items()]
        threads = f"Threads of each process. Default {self.threads or 'that of torch'}."
        given += [("jobs", int, "Processes. Default 1."), ("threads", int, threads)]
        given += [("executor", str, "local (default) or dask."), ("address", str, "Of dask, e.g. tcp://host:8786.")]
        given += [("store", Path, "Results file. Default directloss.sqlite.")]
        given += [("output", Path, "Folder for rows.csv, table.md and figures.")]
        given += [("report", Path, "Also write a page of this experiment's rows in the store.")]
        given += [("json", bool, "Print the table as one JSON list.")]
        parameters = []
        for name, kind, text in given:
            listed = () if kind in (int, float, str, bool, Path) else kind.__metadata__
            kind = str if listed else kind
            about_it = Parameter(help=text, show_default=False, negative=())
            hint = Annotated[(kind | None, about_it, *listed)]  # type: ignore[valid-type]
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint))
        return inspect.Signature(parameters)
