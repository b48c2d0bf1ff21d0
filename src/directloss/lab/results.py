"""``directloss results``: what a store holds."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.lab.experiment import Experiment
from directloss.lab.store import Row, Store
from directloss.lab.table import Column, Table, grouped, join
from directloss.shown import to_csv


def show(path: Path, experiments: Sequence[Experiment]) -> None:
    """A table with a line for each configuration, and what tells it from others."""
    known = {experiment.name: experiment for experiment in experiments}

    def label(row: Row) -> str:
        try:
            return known[row.experiment].label(known[row.experiment].parse(row))
        except KeyError:
            return ", ".join(f"{name} {value}" for name, value in row.config.items())
        except ValueError as error:
            return f"has {error}"

    columns = (
        Column("config_hash", "hash", lambda rows: rows[0].config_hash),
        Column("experiment", "experiment", lambda rows: rows[0].experiment),
        Column("configuration", "configuration", lambda rows: label(rows[0])),
        Column("repetitions", "repetitions", len),
        Column("commit", "commit", lambda rows: join((row.code for row in rows), ", ")),
        Column("last", "last", lambda rows: max(row.finished for row in rows)),
    )
    with closing(Store(path, create=False)) as store:
        groups = sorted(
            grouped(store.rows(), lambda row: row.config_hash).values(),
            key=lambda rows: (rows[0].experiment, rows[0].finished),
        )
        Table.of(str(path), columns, groups).print()


def export(path: Path, form: str, output: Path | None) -> None:
    """Every repetition, as CSV or JSON, to a file or to standard output."""
    if form not in ("csv", "json"):
        raise UserError(f"--format is {form!r}; choose from csv, json")
    with closing(Store(path, create=False)) as store:
        rows = [row.flat() for row in store.rows()]
    if not rows:
        raise UserError(f"{path} holds no results yet; run an experiment with --store {path}")
    text = json.dumps(rows, indent=1) + "\n" if form == "json" else to_csv(rows)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


def delete(path: Path, key: str) -> None:
    """Delete what starts with ``key``, and say how much that was."""
    if len(key) < 4:
        raise UserError(f"{key!r} is too short to name a configuration; give at least 4 characters of its hash")
    with closing(Store(path, create=False, write=True)) as store:
        count = store.delete(key)
    if not count:
        raise UserError(f"no configuration in {path} starts with {key!r}; see directloss results list")
    print(f"Deleted {count} repetitions.")
