"""``directloss results``: what a store holds."""

import csv
import io
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.runs import Store


def show(path: Path) -> None:
    """A table with a line for each configuration."""
    from rich.console import Console
    from rich.table import Table

    table = Table("hash", "experiment", "method", "size", "recipe", "seed", "repetitions", "commit", "last")
    for key, group in groupby(Store(path, create=False).rows(), key=lambda row: row["config_hash"]):
        rows = list(group)
        first = rows[0]
        about = [str(first.get(name, "")) for name in ("experiment", "method", "size", "recipe", "seed")]
        commits = ", ".join(sorted({row["code"] for row in rows}))
        table.add_row(key, *about, str(len(rows)), commits, max(row["finished"] for row in rows))
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def export(path: Path, form: str, output: Path | None) -> None:
    """Every repetition, as CSV or JSON, to a file or to standard output."""
    if form not in ("csv", "json"):
        raise UserError(f"--format is {form!r}; choose from csv, json")
    rows = list(Store(path, create=False).rows())
    if not rows:
        raise UserError(f"{path} holds no results yet; run an experiment with --store {path}")
    text = json.dumps(rows, indent=1) + "\n" if form == "json" else to_csv(rows)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV, with a column for every field that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def delete(path: Path, key: str) -> None:
    """Delete what starts with ``key``, and say how much that was."""
    if len(key) < 4:
        raise UserError(f"{key!r} is too short to name a configuration; give at least 4 characters of its hash")
    count = Store(path, create=False).delete(key)
    if not count:
        raise UserError(f"no configuration in {path} starts with {key!r}; see directloss results list")
    print(f"Deleted {count} repetitions.")
