"""The published files: where they are, whether they are whole, and getting those that are missing."""

import hashlib
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from directloss.data.registry import Source, find_source
from directloss.errors import UserError, need

Copies = dict[str, dict[Path, str]]


def find(source: Source, folder: Path) -> Copies:
    """Every copy of each file, packed or not, in any of the known layouts, with the SHA-256 that it must have."""
    try:
        return {
            name: {
                path: sha256
                for place in source.folders
                for suffix, sha256 in forms.items()
                if (path := folder / place / f"{name}{suffix}").is_file()
            }
            for name, forms in {**source.files, **source.archive}.items()
        }
    except OSError as error:
        raise UserError(f"cannot look into {folder}: {error.strerror}; check its permissions") from error


def missing(source: Source, copies: Copies) -> list[str]:
    """The files that are neither there by themselves nor in an archive."""
    return [] if any(copies[name] for name in source.archive) else [name for name in source.files if not copies[name]]


def provide(name: str, folder: Path, fetch: bool = True) -> None:
    """Get what is missing of a data set, or raise UserError if it may not be downloaded."""
    source = find_source(name)
    if lacking := missing(source, find(source, folder)):
        if not fetch:
            raise not_found(name, folder, f"download is off (missing: {', '.join(lacking)})")
        download(name, folder)


def read(name: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """The bytes of each file, packed or not, all of them checked."""
    source = find_source(name)
    copies = find(source, folder)
    if all(copies[file] for file in source.files):
        for file in source.files:
            path, sha256 = next(iter(copies[file].items()))
            _compare(path, sha256, digest(path), name)
            yield file, path.read_bytes()
        return
    path, sha256 = next(copy for file in source.archive for copy in copies[file].items())
    _compare(path, sha256, digest(path), name)
    with tarfile.open(path) as archive:
        for member in archive:
            file = PurePosixPath(member.name).name
            if file in source.files and (content := archive.extractfile(member)):
                data = content.read()
                _compare(path / file, source.files[file][""], hashlib.sha256(data).hexdigest(), name)
                yield file, data


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check its disk and permissions") from error


def _compare(path: Path, expected: str, found: str, name: str) -> None:
    if found != expected:
        raise UserError(
            f"{path} is altered or cut short: its SHA-256 is {found}, expected {expected}; "
            f"delete it and run directloss data fetch {name}, or copy it again"
        )


def download(name: str, folder: Path) -> None:
    """Get the files of a data set that are missing, each from the first mirror that has it whole."""
    need("pooch", "downloading", extra="lab")
    import pooch
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    pooch.get_logger().setLevel("WARNING")  # the progress bar and our errors say it all
    source = find_source(name)
    wanted = source.archive or {file: source.files[file] for file in missing(source, find(source, folder))}
    target = folder / source.folders[0]
    made = [path for path in (target, *target.parents) if not path.exists()]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        for file, forms in wanted.items():
            suffix, sha256 = list(forms.items())[-1]
            failures = []
            for url in (f"{mirror}{file}{suffix}" for mirror in source.mirrors):
                bar = _Bar(progress, f"{file}{suffix}")
                try:
                    path = pooch.retrieve(url, sha256, file + suffix, target, progressbar=bar)
                    Path(path).chmod(0o644)  # pooch leaves it to its owner alone
                    break
                except (OSError, ValueError) as error:  # no network, no such file, no place for it; wrong checksum
                    failures.append(f"{url}: {' '.join(str(error).split())}")
            else:
                for empty in (path for path in made if path.is_dir() and not any(path.iterdir())):
                    empty.rmdir()
                raise not_found(name, folder, f"the download failed because of {'; '.join(failures)}")


def not_found(name: str, folder: Path, why: str) -> UserError:
    """What to say when the files are not there."""
    return UserError(
        f"the data set {name} was not found in {folder}, and {why}; "
        "put its files there, or name a folder that has them with DIRECTLOSS_DATA_DIR or --data-dir (see docs/data.md)"
    )


class _Bar:
    """A progress bar as pooch calls it, drawn by rich."""

    total = 0

    def __init__(self, progress: Any, label: str) -> None:
        self._progress, self._task = progress, progress.add_task(label, total=None)

    def update(self, count: int) -> None:
        self._progress.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop_task(self._task)
