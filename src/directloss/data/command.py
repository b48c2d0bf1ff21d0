"""``directloss data``: which data sets there are, getting them, and checking them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import directloss.data.raw as raw
import directloss.data.tables as tables
from directloss.data.images import data_folder, decoded_folders, find_altered, find_decoded, load
from directloss.data.registry import SOURCES, find_source
from directloss.errors import UserError


def show(data_dir: Path | None) -> None:
    """A table with a line for each data set."""
    from rich.console import Console
    from rich.table import Table

    folder = data_folder(data_dir)
    table = Table("name", "train", "test", "shape", "classes", "files", title=f"data sets in {folder}")
    table.add_column("decoded", overflow="fold")
    for name, source in SOURCES.items():
        copies, keeps = raw.find(source, folder), bool(source.files and source.shape)
        places = dict.fromkeys(str(path.parent.relative_to(folder)) for paths in copies.values() for path in paths)
        files = ", ".join(places) + (" (incomplete)" if raw.missing(source, copies) else "") if places else "-"
        decoded = find_decoded(name, folder) if keeps else None
        where = (files if source.files else "bundled", decoded[0].parent if decoded else "-" if keeps else "not needed")
        shape = "x".join(map(str, source.shape)) or source.unit
        table.add_row(*map(str, (name, source.train, source.test, shape, len(source.classes) or "-", *where)))
    Console(width=None if sys.stdout.isatty() else 1000, markup=False).print(table)


def fetch(names: Sequence[str], data_dir: Path | None) -> None:
    """Make data sets ready to load, and say so."""
    if not names:
        raise UserError(f"name a data set to fetch: all, or some of {', '.join(SOURCES)}")
    for name in _chosen(names):
        source = find_source(name)
        if source.shape:
            load(name, data_dir)
        else:
            getattr(tables, source.reader)(data_dir)
        print(f"{name}: {source.train} train and {source.test} test {source.unit} are ready")


def verify(names: Sequence[str], data_dir: Path | None) -> None:
    """A line for each file: OK, altered or missing."""
    folder = data_folder(data_dir)
    altered = 0
    for name in _chosen(names or ["all"]):
        source = find_source(name)
        copies = raw.find(source, folder)
        for path, expected in (copy for paths in copies.values() for copy in paths.items()):
            found = raw.digest(path)
            altered += found != expected
            print(f"OK       {path}" if found == expected else f"altered  {path}: SHA-256 {found}, expected {expected}")
        for file in raw.missing(source, copies):
            print(f"missing  {folder / source.folders[0] / file}")
        for place in decoded_folders(name, folder) if source.files and source.shape else ():
            for path, wrong in find_altered(place).items():
                altered += bool(wrong)
                print(f"altered  {path}: {wrong}" if wrong else f"OK       {path}")
        if not source.files:
            print(f"OK       {name} is bundled")
    if altered:
        raise UserError(f"{altered} of the files in {folder} are altered; delete them and run directloss data fetch")


def _chosen(names: Sequence[str]) -> list[str]:
    """The names without repetition, all of them known; ``all`` stands for every data set."""
    chosen = list(dict.fromkeys(SOURCES if "all" in names else names))
    for name in chosen:
        find_source(name)
    return chosen
