"""Results in SQLite: a row for every finished repetition, its configuration, result and source kept apart.

A configuration is looked up by comparing all of it with what is stored: fields that a stored one lacks are taken to
have their present defaults, so that a new field orphans nothing, and fields that it has must agree, so that a changed
default never passes for another. Experiments of another version, and methods of another source, never agree.
"""

import errno
import hashlib
import json
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from directloss.errors import UserError
from directloss.lab.provenance import code_version

APPLICATION_ID = 0x444C6F73  # "DLos": how a store knows its own files
FORMAT = 2

_SCHEMA = """
CREATE TABLE results (
    experiment TEXT NOT NULL,
    config_hash TEXT NOT NULL,
    repetition INTEGER NOT NULL,
    config TEXT NOT NULL,
    result TEXT NOT NULL,
    code TEXT NOT NULL,
    finished TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    methods TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (config_hash, repetition)
) WITHOUT ROWID
"""
# Format 1 is the same without these two, the last of the columns and of the fields of ``Row``.
_ADDED = ("version INTEGER NOT NULL DEFAULT 1", "methods TEXT NOT NULL DEFAULT ''")


@dataclass(frozen=True)
class Key:
    """What identifies a configuration."""

    experiment: str
    config: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1  # of the experiment: another one gives other numbers for the same configuration
    methods: str = ""  # a digest of the source of the user's own methods

    def __str__(self) -> str:
        """A hash of the fields that differ from their defaults, whatever their order."""
        return self._digest({k: v for k, v in self.config.items() if self.defaults.get(k, self) != v})

    @property
    def whole(self) -> str:
        """A hash of all fields, for when the other one is taken. Format 1 had this one."""
        return self._digest(dict(self.config))

    def _digest(self, fields: dict[str, Any]) -> str:
        apart = [self.version, self.methods] if self.version != 1 or self.methods else []
        text = json.dumps([self.experiment, fields, *apart], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def agrees(self, config: str, version: int = 1, methods: str = "") -> bool:
        """Whether what is stored is this configuration."""
        with suppress(ValueError, TypeError, RecursionError):  # what is damaged agrees with nothing
            mine, defaults = json.loads(json.dumps([dict(self.config), dict(self.defaults)]))
            return {**defaults, **json.loads(config)} == mine and (version, methods) == (self.version, self.methods)
        return False


@dataclass(frozen=True)
class Row:
    """A finished repetition: its configuration, its result and where it comes from."""

    experiment: str
    config_hash: str
    repetition: int
    config: dict[str, Any]
    result: dict[str, Any]
    code: str
    finished: str
    version: int = 1
    methods: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.result[name] if name in self.result else self.config[name]

    def flat(self) -> dict[str, Any]:
        """One dict of everything, as it is exported."""
        origin = {name: getattr(self, name) for name in ("experiment", "config_hash", "repetition")}
        source: dict[str, Any] = {"code": self.code, "finished": self.finished}
        if (self.version, self.methods) != (1, ""):
            source |= {"version": self.version, "methods": self.methods}
        return {**origin, **self.config, **self.result, **source}


class Store:
    """A results file. Several processes may write to one at once; a killed writer leaves only whole rows."""

    def __init__(self, path: Path, create: bool = True, write: bool = False):
        self.path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        code_version()  # now, because the checkout may move on while an experiment runs
        try:
            new = self._check_file()
            if new and not create:
                if path.exists() and path.stat().st_size:
                    raise UserError(f"{path} is a database of another program; give another --store path")
                raise UserError(f"no results at {path}; run an experiment with --store {path} first")
            self._db = self._connect(create or write)
            if new:
                self._create()
            self._check_content()
        except (sqlite3.Error, OSError) as error:
            if "malformed" in str(error) or "not a database" in str(error):
                raise self._damaged(str(error)) from error
            raise UserError(f"cannot use {path} as a results store ({error}); give another --store path") from error

    def _check_file(self) -> bool:
        """Whether there is no store yet. Another program's file is refused by its header, without opening it."""
        if not self.path.exists():
            return True
        if not stat.S_ISREG(self.path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        with self.path.open("rb") as file:
            header = file.read(100)
        if not header:
            return True
        application = int.from_bytes(header[68:72], "big")
        if not header.startswith(b"SQLite format 3\0") or application not in (0, APPLICATION_ID):
            raise UserError(f"{self.path} is a file of another program; give another --store path")
        return application == 0

    def _connect(self, write: bool) -> sqlite3.Connection:
        def connect(database: str | Path, uri: bool = False) -> sqlite3.Connection:
            return sqlite3.connect(database, timeout=60, isolation_level=None, uri=uri)

        if write:
            return connect(self.path)
        address = self.path.absolute().as_uri()
        db = connect(f"{address}?mode=rw", uri=True)
        try:
            db.execute("SELECT count(*) FROM sqlite_master")
            return db
        except sqlite3.OperationalError:  # WAL mode needs a file beside the store, which read-only media do not take
            db.close()
        log = self.path.with_name(f"{self.path.name}-wal")
        if not log.exists() or not log.stat().st_size:
            return connect(f"{address}?immutable=1", uri=True)
        self._copy = tempfile.TemporaryDirectory()
        for file in (self.path, log):
            shutil.copy(file, self._copy.name)
        return connect(Path(self._copy.name) / self.path.name)

    def _create(self) -> None:
        """Make the table, unless another process was first."""
        with self._transaction():
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and self._pragma("application_id") != APPLICATION_ID:
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

    def _check_content(self) -> None:
        """Refuse what is damaged, or newer; both by what SQLite reads, the write-ahead log included."""
        if (version := self._pragma("user_version")) > FORMAT:
            raise UserError(
                f"{self.path} was written by a newer directloss (format {version}, this one reads {FORMAT}); "
                "upgrade directloss or give another --store path"
            )
        if (found := self._pragma("quick_check(1)")) != "ok":
            raise self._damaged(found)

    def _damaged(self, why: str) -> UserError:
        why = " ".join(why.split())
        return UserError(f"{self.path} is damaged ({why}); restore it from a copy or give another --store path")

    def _pragma(self, name: str) -> Any:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """BEGIN IMMEDIATE takes the write lock at once, so that two writers wait instead of failing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add(self, key: Key, results: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Save finished repetitions, in one transaction. One that is there already stays as it is.

        A result that names its ``code`` was made with those commits, others with the present one; one that names when
        it ``finished`` is of then, others of now.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        new = [
            (
                number,
                json.dumps({k: v for k, v in result.items() if k not in ("code", "finished")}),
                result.get("code") or code_version(),
                result.get("finished") or now,
            )
            for number, result in results
        ]
        if not new:
            return
        with self._transaction():
            if self._pragma("user_version") < FORMAT:
                for column in _ADDED:
                    self._db.execute(f"ALTER TABLE results ADD COLUMN {column}")
                self._db.execute(f"PRAGMA user_version={FORMAT}")
            name, text = self._find(key) or (self._free_name(key), json.dumps(dict(key.config), sort_keys=True))
            rows = [
                (key.experiment, name, number, text, result, commit, finished, key.version, key.methods)
                for number, result, commit, finished in new
            ]
            self._db.executemany("INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING", rows)

    def _free_name(self, key: Key) -> str:
        taken = self._db.execute("SELECT 1 FROM results WHERE config_hash = ? LIMIT 1", (str(key),)).fetchone()
        return key.whole if taken else str(key)

    def _find(self, key: Key) -> tuple[str, str] | None:
        """The hash and the text under which a configuration is stored."""
        every = "SELECT * FROM results WHERE experiment = ? GROUP BY config_hash"
        for _, name, _, config, _, _, _, *source in self._db.execute(every, (key.experiment,)):
            if key.agrees(config, *source):
                return name, config
        return None

    def finished(self, key: Key) -> set[int]:
        """The repetitions of a configuration that are there."""
        return {row.repetition for row in self.rows_of(key)}

    def rows_of(self, key: Key) -> list[Row]:
        """The repetitions of a configuration."""
        found = self._find(key)
        return list(self._read("config_hash = ?", found[0])) if found else []

    def rows(self, experiment: str | None = None) -> Iterator[Row]:
        """Saved repetitions, of one experiment or of all."""
        return self._read("?1 IS NULL OR experiment = ?1", experiment)

    def _read(self, condition: str, *values: Any) -> Iterator[Row]:
        order = "experiment, config_hash, repetition"
        found = self._db.execute(f"SELECT * FROM results WHERE {condition} ORDER BY {order}", values)
        for name, digest, number, config, result, *source in found:
            yield Row(name, digest, number, self._dict(config, digest), self._dict(result, digest), *source)

    def _dict(self, text: str, digest: str) -> dict[str, Any]:
        """A JSON object of a row."""
        with suppress(ValueError, TypeError, RecursionError):
            if isinstance(found := json.loads(text), dict):
                return found
        raise UserError(
            f"{self.path} has a damaged row (configuration {digest}: not a JSON object); "
            f"directloss results delete {digest} --store {self.path} removes it"
        )

    def delete(self, key: str) -> int:
        """Delete the repetitions of the configurations whose hash starts with ``key``; return how many."""
        return self._db.execute("DELETE FROM results WHERE substr(config_hash, 1, length(?1)) = ?1", (key,)).rowcount

    def close(self) -> None:
        self._db.close()
        if self._copy:
            self._copy.cleanup()
