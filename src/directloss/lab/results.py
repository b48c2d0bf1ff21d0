"""``directloss results``: what a store holds."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

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


def load(path: Path, file: Path, experiments: Sequence[Experiment]) -> None:
    """Add the repetitions of a JSON file that ``export`` wrote, and say how many are new to the store."""
    known = {experiment.name: experiment for experiment in experiments}
    try:
        records = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(records, list):
            raise ValueError(f"it is {type(records).__name__}, expected a list of rows")
        rows = [_row(record, known) for record in records]
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}); give a file of results export --format json") from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is not what results export --format json writes ({error}); nothing was imported"
        ) from None
    with closing(Store(path)) as store:
        before = sum(1 for _ in store.rows())
        for row in rows:
            key = replace(known[row.experiment].key(known[row.experiment].parse(row)), methods=row.methods)
            store.add(key, [(row.repetition, row.result | {"code": row.code, "finished": row.finished})])
        new = sum(1 for _ in store.rows()) - before
    print(f"Imported {new} repetitions; {len(rows) - new} were there already.")


_ORIGIN = {"repetition": int, "code": str, "finished": str}


def _row(record: Any, known: Mapping[str, Experiment]) -> Row:
    """A row of the store from one that was exported flat; ValueError if it is not a result of a known experiment."""
    if not isinstance(record, dict) or record.get("experiment") not in known:
        name = record.get("experiment") if isinstance(record, dict) else record
        raise ValueError(f"a row is of the experiment {name!r}, expected of {', '.join(known)}")
    for name, kind in _ORIGIN.items():
        if type(record.get(name)) is not kind:
            raise ValueError(f"a row has {name} {record.get(name)!r}, expected of type {kind.__name__}")
    experiment = known[record["experiment"]]
    settings = {one.name for one in fields(experiment.config)}
    config = {name: value for name, value in record.items() if name in settings}
    apart = {*settings, *_ORIGIN, "experiment", "config_hash", "version", "methods"}
    row = Row(
        record["experiment"],
        str(record.get("config_hash", "")),
        record["repetition"],
        config,
        {name: value for name, value in record.items() if name not in apart},
        record["code"],
        record["finished"],
        record.get("version", 1),
        record.get("methods", ""),
    )
    experiment.parse(row)
    return row


def delete(path: Path, key: str) -> None:
    """Delete what starts with ``key``, and say how much that was."""
    if len(key) < 4:
        raise UserError(f"{key!r} is too short to name a configuration; give at least 4 characters of its hash")
    with closing(Store(path, create=False, write=True)) as store:
        count = store.delete(key)
    if not count:
        raise UserError(f"no configuration in {path} starts with {key!r}; see directloss results list")
    print(f"Deleted {count} repetitions.")
