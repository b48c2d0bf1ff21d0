"""What an experiment gave: rows that show themselves as a table, as CSV, as figures and as a folder of all of it."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.files import write_atomically
from directloss.lab import figures
from directloss.lab.experiment import Experiment
from directloss.lab.provenance import code_version, machine
from directloss.lab.store import Row
from directloss.lab.table import Table, grouped, join
from directloss.shown import Shown, to_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """Finished repetitions of an experiment, a row each."""

    experiment: Experiment
    rows: Sequence[Row]

    @property
    def table(self) -> Table:
        return self.experiment.table(self.rows, self.experiment.title)

    def records(self) -> list[dict[str, Any]]:
        """A flat dict for each repetition, with its configuration and without curves."""
        every = (row.flat() | self.experiment.measured(row) for row in self.rows)
        return [{name: v for name, v in one.items() if not isinstance(v, list)} for one in every]

    def texts(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """The table's."""
        return self.table.caption, *self.table.cells()

    def plot(self) -> "Figure":
        """The experiment's first figure; without one, the table's numbers over its last axis."""
        return self.experiment.figures[0].draw(self.rows) if self.experiment.figures else self._over_axis()

    def _over_axis(self) -> "Figure":
        """A panel for each column of measured numbers, a line for each combination of the other axes."""
        *others, axis = self.experiment.axes or ("repetitions",)
        settings = {one.name for one, _, _ in self.experiment.options.values()}
        shown = [
            column
            for column in self.table.shown()
            if not (column.setting or column.name.startswith("_") or column.name in {*settings, "repetitions"})
            if all(isinstance(line[column.name], int | float) for line in self.table.lines)
        ]
        curves = grouped(self.table.lines, lambda line: ", ".join(str(line.get(name, "")) for name in others))
        figure, panels = figures.panels(len(shown))
        for panel, column in zip(panels, shown, strict=True):
            for label, lines in curves.items():
                panel.plot(
                    [line.get(axis, 0) for line in lines], [line[column.name] for line in lines], "o-", label=label
                )
            panel.set_title(column.title, fontsize=10)
            panel.set_xlabel(axis)
        if others:
            panels[-1].legend(fontsize=8, frameon=False)
        return figure

    def __repr__(self) -> str:
        return "\n".join([super().__repr__(), *self.experiment.notes(self.rows)])

    def print(self) -> None:
        """Table and notes, to the terminal."""
        self.table.print()
        for note in self.experiment.notes(self.rows):
            print(note)

    def write(self, folder: Path) -> None:
        """Rows and table, with what is needed to make them again; each figure as CSV, SVG and PNG."""
        experiment, rows = self.experiment, self.rows
        script = Path(sys.argv[0]).name  # or our own command, or the module behind it
        program = f"python {script}" if script.endswith(".py") and script != "__main__.py" else "directloss"
        write_atomically(folder / "rows.csv", self.to_csv())
        facts = (
            f"- command: `{program} {shlex.join(sys.argv[1:])}`\n"
            f"- commits of the rows: {join((c for row in rows for c in row.code.split(', ')), ', ')}; "
            f"of this table: {code_version()}\n"
            f"- spread: {experiment.spread(rows)}\n"
            f"- machine: {machine()}\n"
        )
        tables = [f"{table.caption}\n\n{table.to_markdown()}" for table in experiment.tables(rows, experiment.title)]
        notes = "".join(f"- {note}\n" for note in experiment.notes(rows))
        write_atomically(folder / "table.md", "\n".join([facts, *tables, *filter(None, [notes])]))
        for drawing in experiment.figures:
            write_atomically(folder / f"{drawing.name}.csv", to_csv(drawing.points(rows)))
            figures.save(drawing.draw(rows), folder / drawing.name)
