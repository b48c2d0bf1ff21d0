"""``directloss report``: everything a store holds as one self-contained page, a section for each experiment.

A section shows a row for each configuration, with where it comes from, and says what it leaves out. One whose
experiment is not in the store names the command that makes it.
"""

import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss import __version__
from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.lab import figures
from directloss.lab.experiment import Experiment
from directloss.lab.provenance import code_version, machine
from directloss.lab.store import Row, Store
from directloss.lab.table import Table, grouped, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    notes: Sequence[str] = ()
    left_out: Sequence[str] = ()


# Inches: a wider figure is made narrower, so that a phone can scroll over readable text; a narrow one fits a phone.
_WIDEST, _NARROW = 13.5, 4.5

Make = Callable[[list[Row]], Section]


def build(store: Path, output: Path, experiments: Sequence[Experiment], others: dict[str, Make] | None = None) -> None:
    """Write the page. Nothing is written if the store is none of ours, or empty."""
    if os.path.isdir(output):  # unlike Path's, false for a path that cannot be looked at
        raise UserError(f"{output} is a folder; give --output a file, e.g. {output / 'report.html'}")
    if os.path.exists(output) and os.path.exists(store) and os.path.samefile(output, store):
        raise UserError(f"--output {output} is the store itself; give another file, e.g. report.html")
    with closing(Store(store, create=False)) as saved:
        rows = grouped(saved.rows(), lambda row: row.experiment)
    if not rows:
        raise UserError(f"{store} holds no results yet; run an experiment with --store {store}")
    sections = make_sections(rows, experiments, others or {})
    write_atomically(output, render(sections))
    missing = [section.title for section in sections if not section.sources]
    print(f"Wrote {output}" + (f"; not in {store}: {', '.join(missing)}" if missing else ""))


def make_sections(
    rows: dict[str, list[Row]], experiments: Sequence[Experiment], others: dict[str, Make]
) -> list[Section]:
    """A section for each experiment, then the others; the last one says which rows belong to none."""
    sections = [make_section(experiment, rows.get(experiment.name, [])) for experiment in experiments]
    sections += [make(rows.get(name, [])) for name, make in others.items()]
    known = {*others, *(experiment.name for experiment in experiments)}
    if unknown := {name: len(found) for name, found in rows.items() if name not in known and found}:
        counts = [f"{count:,} of {name}" for name, count in sorted(unknown.items())]
        text = "Rows of experiments that this program does not have are not shown."
        sections.append(Section("others", "Others", text, "", left_out=[f"Not shown: {', '.join(counts)}."]))
    return sections


def make_section(experiment: Experiment, rows: Sequence[Row]) -> Section:
    """Tables, figures and sources of an experiment's rows."""
    known, reasons = [], Counter[str]()
    for alike in grouped(rows, lambda row: row.config_hash).values():
        try:
            known.append((experiment.parse(alike[0]), alike))
        except ValueError as error:
            reasons[str(error)] += len(alike)
    order = ("recipe", "seed", *experiment.axes)
    known.sort(key=lambda one: [experiment.position(name, getattr(one[0], name, "")) for name in order])
    found = [row for _, alike in known for row in alike]
    groups = _grouped(known, experiment.by)
    named = any(column.setting for column in experiment.columns)  # what all its lines share, a table says itself
    tables = [table for where, group in groups for table in experiment.tables(group, "" if named else where)]
    drawn = [
        (inline(drawing.draw(group), f"{drawing.name}-{number}"), ": ".join(filter(None, (drawing.caption, where))))
        for number, (where, group) in enumerate(groups)
        for drawing in experiment.figures
        if drawing.points(group)
    ]
    return Section(
        experiment.name,
        experiment.title,
        experiment.text,
        f"directloss {experiment.command} {experiment.example}".strip(),
        tables,
        drawn,
        sources(experiment, known),
        experiment.notes(found),
        [f"Not shown: {count:,} rows with {reason}." for reason, count in reasons.items()],
    )


def _grouped(
    known: Sequence[tuple[Any, list[Row]]], names: Sequence[str] | Callable[[Row], str]
) -> list[tuple[str, list[Row]]]:
    """Rows that agree in these fields, with a name for each group: what tells them apart, or the first field."""
    if callable(names):
        return list(grouped([row for _, rows in known for row in rows], names).items())
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for config, rows in known:
        groups[tuple(getattr(config, name) for name in names)] += rows
    told = [index for index, values in enumerate(zip(*groups, strict=True)) if len(set(values)) > 1] or [0]
    return [
        (", ".join(f"{names[index]} {key[index]}" for index in told if names and key[index] != ""), group)
        for key, group in groups.items()
    ]


def sources(experiment: Experiment, known: Sequence[tuple[Any, Sequence[Row]]]) -> list[Source]:
    """A source for all configurations that one command makes: those that differ in one axis only."""
    names = {one.name: name for name, (one, _, _) in experiment.options.items()}
    axis = names[experiment.axes[-1]] if experiment.axes else ""
    runs: dict[tuple[Any, ...], list[tuple[Any, Sequence[Row]]]] = defaultdict(list)
    for config, rows in known:
        options = experiment.command_options(config)
        if experiment.repetitions is not None:
            options["repetitions"] = max(row.repetition for row in rows) + 1
        options.pop(axis, None)
        text = " ".join(f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items())
        runs[text.replace("_", "-"), join((row.code for row in rows), ", ")].append((config, rows))
    found = []
    for (text, commits), cells in runs.items():
        values = join((getattr(config, experiment.axes[-1]) for config, _ in cells)) if axis else ""
        command = f"directloss {experiment.command} {text}" + (f" --{axis}={values}" if axis else "")
        rows = [row for _, alike in cells for row in alike]
        named = [experiment.label(config) for config, _ in cells]
        what = named[0] if len(named) == 1 else f"{named[0]} and {len(named) - 1} more ({experiment.axes[-1]} {values})"
        seeds = join((row.config.get("seed", "-") for row in rows), ", ")
        found.append(Source(what, _quoted(command), seeds, commits, experiment.spread(rows)))
    return found


def _quoted(command: str) -> str:
    return " ".join(part if re.fullmatch(r"[\w.,:=/+-]+", part) else shlex.quote(part) for part in command.split())


def inline(figure: "Figure", key: str) -> str:
    """The figure as SVG with ids of its own, because all figures share the page's, and without what is not drawn."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(min(width, _WIDEST), height)  # text of a wider one would be too small on a phone
    svg = figures.to_inline_svg(figure)
    if width <= _NARROW:
        svg = svg.replace("<svg ", '<svg class="narrow" ', 1)
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", svg)


def render(sections: Sequence[Section]) -> str:
    """The page as text."""
    import jinja2

    here = files("directloss.lab.report")
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
        machine=machine(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )
