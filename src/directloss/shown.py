"""What shows itself as text, as CSV and as a figure: audits, and the results of experiments."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown:
    """Results. A subclass says what its records are, how they read as a table, and how they are drawn."""

    def records(self) -> list[dict[str, Any]]:
        """A flat dict for each line."""
        raise NotImplementedError

    def texts(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Heading, header and lines."""
        raise NotImplementedError

    def plot(self) -> "Figure":
        """A matplotlib figure; ``savefig`` saves it."""
        raise NotImplementedError

    def to_csv(self, path: str | Path | None = None) -> str:
        """The records as CSV, also written to a file if one is named."""
        text = to_csv(self.records())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        heading, header, body = self.texts()
        widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
        cells = (zip(line, widths, strict=True) for line in (header, *body))
        return "\n".join([heading, *("  ".join(cell.rjust(width) for cell, width in line) for line in cells)])


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, with a column for every field that any of them has; lists and tables as JSON.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
