"""One table, rendered to the terminal, Markdown, JSON and HTML."""

import json
import statistics
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Line = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Column:
    """A number of every line: its name in JSON, and how it is shown.

    Names that start with an underscore are shown only; columns without a title are in JSON only.
    """

    name: str
    title: str = ""
    value: Callable[[Sequence[Any]], Any] | None = None  # from the rows of a line; by default what they say of the name
    show: str | Callable[[Line], str] = "{}"  # a format of the value, or a function of the line
    paper: Callable[[Line], str | None] | None = None  # the paper's figure, which gets a column of its own
    below: bool = False  # on a page it stands small below the column before it
    setting: bool = False  # said once, above, if all lines share it

    def of(self, rows: Sequence[Any]) -> Any:
        return self.value(rows) if self.value else rows[0][self.name]

    def text(self, line: Line) -> str:
        if callable(self.show):
            return self.show(line)
        return "-" if line[self.name] is None else self.show.format(line[self.name])


@dataclass(frozen=True)
class Table:
    """Lines of numbers under the columns that show them."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]

    @classmethod
    def of(cls, title: str, columns: Sequence[Column], groups: Iterable[Sequence[Any]]) -> "Table":
        """A line for each group of rows."""
        return cls(title, columns, [{column.name: column.of(rows) for column in columns} for rows in groups])

    def shared(self) -> dict[str, str]:
        """The settings in which all lines agree, by their titles."""
        found = {column: {column.text(line) for line in self.lines} for column in self.columns if column.setting}
        return {column.title: texts.pop() for column, texts in found.items() if len(texts) == 1}

    @property
    def caption(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.shared().items() if value)
        return ". ".join(filter(None, (self.title, facts)))

    def compared(self, column: Column) -> bool:
        """Whether the paper has a figure for any line."""
        return column.paper is not None and any(map(column.paper, self.lines))

    def shown(self) -> list[Column]:
        """The columns to show: those whose value is not said once for all, nor missing everywhere."""
        shared = self.shared()
        shown = [column for column in self.columns if column.title and column.title not in shared]
        return [column for column in shown if any(column.text(line) not in ("", "-") for line in self.lines)]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and body as text, the paper's figures in columns of their own."""
        header, body = [], [[] for _ in self.lines]  # type: list[str], list[list[str]]
        for column in self.shown():
            compared = self.compared(column)
            header += [column.title, *["paper"] * compared]
            for cells, line in zip(body, self.lines, strict=True):
                cells.append(column.text(line))
                if column.paper and compared:
                    cells.append(column.paper(line) or "-")
        return header, body

    def to_markdown(self) -> str:
        return markdown(*self.cells())

    def to_json(self) -> str:
        return json.dumps([{k: v for k, v in line.items() if not k.startswith("_")} for line in self.lines])

    def to_html(self) -> tuple[list[str], list[list[list[str]]]]:
        """Header, and of each line its cells: what is shown large, then what stands small below it."""
        columns = self.shown()
        header = [column.title for column in columns if not column.below]
        body = []
        for line in self.lines:
            cells: list[list[str]] = []
            for column in columns:
                texts = [column.text(line)]
                if column.paper and self.compared(column):
                    theirs = column.paper(line)
                    texts.append(f"paper {theirs}" if theirs else "not in the paper")
                cells[-1:] = [cells[-1] + texts] if column.below else [*cells[-1:], texts]
            body.append(cells)
        return header, body

    def print(self) -> None:
        """To the terminal; where nobody looks, without a limit to the width."""
        from rich.console import Console
        from rich.table import Table as Shown
        from rich.text import Text

        header, body = self.cells()
        facts = ", ".join(f"{name} {value}".strip() for name, value in self.shared().items() if value)
        shown = Shown(title=Text(plain(self.title)), caption=Text(plain(facts)) if facts else None)
        for index, name in enumerate(header):
            numbers = index and all(set(cells[index]) <= set("0123456789.,+-± %e") for cells in body)
            shown.add_column(Text(plain(name)), justify="right" if numbers else "left", overflow="fold")
        ends = [cells[0] != following[0] for cells, following in zip(body, [*body[1:], [""]], strict=True)]
        sections = sum(ends) == len({cells[0] for cells in body}) < len(body)  # not if values take turns
        for cells, end in zip(body, ends, strict=True):
            shown.add_row(*(Text(plain(cell)) for cell in cells), end_section=end and sections)
        Console(width=None if sys.stdout.isatty() else 150).print(shown)


def plain(text: str) -> str:
    """Text that cannot style or move the terminal: control characters and reversed writing are spelled out."""
    return "".join(
        character if unicodedata.category(character) not in ("Cc", "Cf", "Cs") else f"\\u{ord(character):04x}"
        for character in str(text)
    )


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = (header, ["---"] * len(header), *body)
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def mean(name: str, factor: float = 1.0) -> Callable[[Sequence[Any]], float]:
    """Of what the rows say of a name."""
    return lambda rows: factor * sum(row[name] for row in rows) / len(rows)


def deviation(name: str, factor: float = 1.0) -> Callable[[Sequence[Any]], float]:
    """The standard deviation; 0 for one row."""
    return lambda rows: factor * statistics.stdev(float(row[name]) for row in rows) if len(rows) > 1 else 0.0


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by their key, in the order in which keys are first met."""
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def join(values: Iterable[Any], separator: str = ",") -> str:
    """Each once, in order."""
    return separator.join(map(str, sorted(set(values))))
