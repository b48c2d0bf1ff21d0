"""Results: one row for every finished repetition, in SQLite, and the fan-out that fills them in."""

import errno
import hashlib
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from directloss.errors import UserError

APPLICATION_ID = 0x444C6F73  # "DLos": how a store knows its own files
FORMAT = 1

_SCHEMA = """
CREATE TABLE results (
    experiment TEXT NOT NULL,
    config_hash TEXT NOT NULL,
    repetition INTEGER NOT NULL,
    config TEXT NOT NULL,
    result TEXT NOT NULL,
    code TEXT NOT NULL,
    finished TEXT NOT NULL,
    PRIMARY KEY (config_hash, repetition)
) WITHOUT ROWID
"""


def config_hash(experiment: str, config: dict[str, Any]) -> str:
    """What identifies a configuration, whatever the order of its fields."""
    text = json.dumps([experiment, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code_version() -> str:
    """The commit this process runs, marked where the package differs from it; its version outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + ("-modified" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        from directloss import __version__

        return __version__


class Store:
    """A results file. Several processes may write to one at once; a killed writer leaves only whole rows."""

    def __init__(self, path: Path, create: bool = True):
        self.path = path
        code_version()  # now, because the checkout may move on while an experiment runs
        try:
            new = self._check_file()
            if new and not create:
                if path.exists() and path.stat().st_size:
                    raise UserError(f"{path} is a database of another program; give another --store path")
                raise UserError(f"no results at {path}; run an experiment with --store {path} first")
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            if new:
                self._create()
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"cannot use {path} as a results store ({error}); give another --store path") from error

    def _check_file(self) -> bool:
        """Whether there is no store yet. Another program's file is refused by its header, without opening it."""
        header = self.path.read_bytes()[:100] if self.path.exists() else b""
        if not header:
            return True
        version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
        if not header.startswith(b"SQLite format 3\0") or application not in (0, APPLICATION_ID):
            raise UserError(f"{self.path} is a file of another program; give another --store path")
        if version > FORMAT:
            raise UserError(
                f"{self.path} was written by a newer directloss (format {version}, this one reads {FORMAT}); "
                "upgrade directloss or give another --store path"
            )
        return application == 0

    def _create(self) -> None:
        """Make the table, unless another process was first."""
        with self._transaction():
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise UserError(f"{self.path} is a database of another program; give another --store path")
            if not tables:
                self._db.execute(_SCHEMA)
                self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version={FORMAT}")
        for attempt in range(100):
            try:  # readers then never wait for a writer; needs a moment without other connections
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if attempt == 99:
                    raise
                time.sleep(0.05)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)

    def add(
        self, experiment: str, config: dict[str, Any], results: Iterable[tuple[int, dict[str, Any]]], code: str = ""
    ) -> None:
        """Save finished repetitions, in one transaction. One that is there already stays as it is.

        ``code`` is the commit they were made with, by default the present one.
        """
        key, text, code = config_hash(experiment, config), json.dumps(config, sort_keys=True), code or code_version()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        rows = [(experiment, key, number, text, json.dumps(result), code, now) for number, result in results]
        with self._transaction():
            self._db.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)

    def finished(self, experiment: str, config: dict[str, Any]) -> set[int]:
        """The repetitions of a configuration that are there."""
        found = self._db.execute(
            "SELECT repetition FROM results WHERE config_hash = ?", (config_hash(experiment, config),)
        )
        return {row[0] for row in found}

    def rows(self, experiment: str | None = None, key: str = "") -> Iterator[dict[str, Any]]:
        """Saved repetitions, each as one flat dict of its configuration, its result and where it came from."""
        found = self._db.execute(
            "SELECT experiment, config_hash, repetition, config, result, code, finished FROM results "
            "WHERE (?1 IS NULL OR experiment = ?1) AND substr(config_hash, 1, length(?2)) = ?2 "
            "ORDER BY experiment, config_hash, repetition",
            (experiment, key),
        )
        for name, digest, repetition, config, result, code, finished in found:
            yield {
                "experiment": name,
                "config_hash": digest,
                "repetition": repetition,
                **json.loads(config),
                **json.loads(result),
                "code": code,
                "finished": finished,
            }

    def delete(self, key: str) -> int:
        """Delete the repetitions of the configurations whose hash starts with ``key``; return how many."""
        return self._db.execute("DELETE FROM results WHERE substr(config_hash, 1, length(?1)) = ?1", (key,)).rowcount

    def close(self) -> None:
        self._db.close()


def open_store(path: Path, *folders: Path) -> Store:
    """The store and the folders of an experiment, early, so that nobody waits for results that have no place to go.

    Where one of them cannot be made, none is left behind.
    """
    made: list[Path] = []
    try:
        for folder in folders:
            missing = [part for part in (folder, *folder.parents) if not part.exists()]
            for part in reversed(missing):
                part.mkdir(exist_ok=True)
                made.append(part)
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return Store(path)
    except (OSError, UserError) as error:
        for part in reversed(made):
            with suppress(OSError):  # another process may use it by now
                part.rmdir()
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot write to the folder {folder}: {error.strerror}; give another path") from error


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT: takes the write lock at once, so that two writers wait instead of failing."""

    def __init__(self, db: sqlite3.Connection):
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("ROLLBACK" if kind else "COMMIT")


@dataclass(frozen=True)
class Workers:
    """Who does the work: this machine's processes, or a dask cluster's."""

    jobs: int = 1
    threads: int = 1  # of each process
    executor: Literal["local", "dask"] = "local"
    address: str | None = None  # of the dask scheduler

    def check(self) -> None:
        """Raise UserError where the cluster cannot be reached."""
        if self.executor == "dask":
            self.connect().close()

    def connect(self) -> Any:
        """A client of the dask cluster."""
        try:
            from distributed import Client
        except ImportError:
            raise UserError("--executor dask needs dask: pip install 'directloss[dask]'") from None
        if self.address is None:
            raise UserError("--executor dask needs --address, e.g. tcp://scheduler:8786")
        try:
            return Client(self.address, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise UserError(
                f"no dask scheduler answers at {self.address} ({type(error).__name__}); is it running?"
            ) from None


def fan_out(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: Workers
) -> Iterator[tuple[int, Any]]:
    """Call ``function`` on every task, in parallel, and yield (index, result) as they finish."""
    if workers.executor == "local" and workers.jobs == 1:
        for index, task in enumerate(tasks):
            yield index, function(*task)
        return
    import joblib

    calls = [joblib.delayed(_indexed)(function, index, task) for index, task in enumerate(tasks)]
    options = {"batch_size": 1, "return_as": "generator_unordered"}
    if workers.executor == "local":
        yield from joblib.Parallel(n_jobs=workers.jobs, **options)(calls)
    else:
        with workers.connect(), joblib.parallel_config(backend="dask"):
            yield from joblib.Parallel(n_jobs=-1, **options)(calls)


def _indexed(function: Callable[..., Any], index: int, task: tuple[Any, ...]) -> tuple[int, Any]:
    return index, function(*task)
