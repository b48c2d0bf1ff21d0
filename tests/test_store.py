"""A store holds each finished repetition once and whole, whoever writes, and leaves the files of others alone."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import pytest

from directloss import files
from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.lab.provenance import code_version
from directloss.lab.store import APPLICATION_ID, FORMAT, Key, Store

CONFIG = {"method": "dsl", "size": 5, "seed": 0}
KEY = Key("test", CONFIG)
OTHER = Key("test", {**CONFIG, "seed": 1})
GROUP = 20  # repetitions in one transaction


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def result(repetition):
    return {"perfect": True, "wrong": repetition / 7, "text": "x" * 200}


def repetitions(path, key=KEY):
    return [row.repetition for row in Store(path).rows_of(key)]


def test_a_row_keeps_configuration_result_and_source_apart_and_is_exported_flat(path):
    Store(path).add(KEY, [(3, result(3)), (1, result(1))])
    rows = list(Store(path).rows())
    assert [row.repetition for row in rows] == [1, 3]
    for row in rows:
        assert (row.config, row.result, row.code) == (CONFIG, result(row.repetition), code_version())
        flat = row.flat()
        assert flat.pop("finished").endswith("+00:00")
        origin = {"experiment": "test", "config_hash": str(KEY), "code": code_version()}
        assert flat == {**origin, "repetition": row.repetition, **CONFIG, **result(row.repetition)}


def test_a_result_may_name_the_commits_that_made_it(path):
    Store(path).add(KEY, [(0, {"wrong": 1, "code": "abc, def"})])
    (row,) = Store(path).rows()
    assert (row.code, row.result) == ("abc, def", {"wrong": 1})


def test_adding_twice_doubles_nothing_and_keeps_the_first(path):
    store = Store(path)
    store.add(KEY, [(0, result(0))])
    store.add(KEY, [(0, result(9)), (1, result(1))])
    store.add(KEY, [])
    assert repetitions(path) == [0, 1]
    assert next(store.rows())["wrong"] == 0


def test_finished_names_the_repetitions_of_one_configuration(path):
    store = Store(path)
    store.add(KEY, [(0, result(0)), (5, result(5))])
    store.add(OTHER, [(1, result(1))])
    store.add(Key("another", CONFIG), [(2, result(2))])
    assert store.finished(KEY) == {0, 5}
    assert store.finished(Key("test", dict(reversed(CONFIG.items())))) == {0, 5}
    assert store.finished(OTHER) == {1}
    assert store.finished(Key("test", {**CONFIG, "seed": 2})) == set()
    assert [row.repetition for row in store.rows("another")] == [2]


def test_delete_takes_the_configurations_that_start_with_the_key(path):
    store = Store(path)
    for key in (KEY, OTHER):
        store.add(key, [(0, result(0)), (1, result(1))])
    assert store.delete("not a hash") == 0
    assert store.delete(str(KEY)[:6]) == 2
    assert store.finished(KEY) == set()
    assert store.finished(OTHER) == {0, 1}


def test_a_hash_depends_on_everything_but_the_order():
    others = [
        Key("another", CONFIG),
        Key("test", {}),
        OTHER,
        Key("test", CONFIG, version=2),
        Key("test", CONFIG, methods="x"),
    ]
    assert str(KEY) == str(Key("test", dict(reversed(CONFIG.items()))))
    assert len({str(KEY), *map(str, others)}) == 6


# What a new version of the program finds


DEFAULTS = {"method": "dsl", "size": 9, "seed": 0}


def test_a_new_field_orphans_nothing_and_joins_the_rows_of_before(path):
    store = Store(path)
    store.add(Key("test", CONFIG, DEFAULTS), [(0, result(0))])
    newer = Key("test", {**CONFIG, "colour": "red"}, {**DEFAULTS, "colour": "red"})
    assert store.finished(newer) == {0}
    store.add(newer, [(0, result(9)), (1, result(1))])
    assert [(row.repetition, row.config) for row in store.rows()] == [(0, CONFIG), (1, CONFIG)]
    blue = Key("test", {**CONFIG, "colour": "blue"}, {**DEFAULTS, "colour": "red"})
    assert store.finished(blue) == set()


def test_a_changed_default_never_passes_for_another(path):
    store = Store(path)
    before = Key("test", {"size": 5, "seed": 0}, {"size": 5, "seed": 0})
    after = Key("test", {"size": 6, "seed": 0}, {"size": 6, "seed": 0})
    store.add(before, [(0, result(0))])
    assert str(before) == str(after)  # neither differs from its defaults
    assert store.finished(after) == set()
    store.add(after, [(0, result(1)), (1, result(2))])
    assert store.finished(after) == {0, 1}
    assert store.finished(Key("test", before.config, after.defaults)) == {0}
    assert len({row.config_hash for row in store.rows()}) == 2


@pytest.mark.parametrize("change", [{"version": 2}, {"methods": "another source"}], ids=str)
def test_another_version_or_source_is_another_configuration(change, path):
    store, other = Store(path), Key("test", CONFIG, **change)
    store.add(KEY, [(0, result(0))])
    assert store.finished(other) == set()
    store.add(other, [(0, result(1))])
    assert [row["wrong"] for row in store.rows_of(other)] == [1 / 7]
    assert store.finished(KEY) == {0}


def format_1(path, rows=2):
    """A store as version 0.1 wrote it, whose hashes are those in results/."""
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE results (experiment TEXT NOT NULL, config_hash TEXT NOT NULL, repetition INTEGER NOT NULL, "
            "config TEXT NOT NULL, result TEXT NOT NULL, code TEXT NOT NULL, finished TEXT NOT NULL, "
            "PRIMARY KEY (config_hash, repetition)) WITHOUT ROWID"
        )
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute("PRAGMA user_version=1")
        for number in range(rows):
            text = json.dumps(CONFIG, sort_keys=True)
            row = ("test", KEY.whole, number, text, json.dumps(result(number)), "abc", "2026-01-01T00:00:00+00:00")
            db.execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    db.close()


def version_of(path):
    with sqlite3.connect(path) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_a_store_of_the_first_format_is_read_as_it_is_and_migrated_by_the_first_write(path):
    format_1(path)
    before = path.read_bytes()
    store = Store(path, create=False)
    assert [(row.repetition, row.code, row.version, row.methods) for row in store.rows()] == [
        (0, "abc", 1, ""),
        (1, "abc", 1, ""),
    ]
    assert store.finished(Key("test", CONFIG, DEFAULTS)) == {0, 1}
    store.close()
    assert path.read_bytes() == before
    Store(path).add(Key("test", CONFIG, DEFAULTS), [(1, result(9)), (2, result(2))])
    assert version_of(path) == FORMAT
    assert [(row.repetition, row["wrong"], row.config_hash) for row in Store(path).rows()] == [
        (number, number / 7, KEY.whole) for number in range(3)
    ]


def test_a_migration_that_fails_leaves_the_first_format(path):
    format_1(path)
    with pytest.raises(sqlite3.Error):
        Store(path).add(KEY, [(5, result(5)), (object(), result(1))])
    assert version_of(path) == 1
    assert repetitions(path) == [0, 1]


def test_a_failed_add_saves_nothing_of_it(path):
    store = Store(path)
    with pytest.raises(sqlite3.Error):
        store.add(KEY, [(0, result(0)), (object(), result(1))])
    store.add(KEY, [(2, result(2))])
    assert repetitions(path) == [2]


# Files that are none, or not whole


def text_file(path):
    path.write_text("My notes, which are longer than the header of a database file, and dear to me.\n" * 20)


def another_programs_database(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE results (mine TEXT)")
    db.execute("INSERT INTO results VALUES ('keep me')")
    db.commit()
    db.close()


def newer_store(path):
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={FORMAT + 1}")
    db.close()


def truncated_store(path):
    """Cut after its first page, which is whole."""
    store = Store(path)
    store.add(KEY, [(number, result(number)) for number in range(200)])
    store.close()
    path.write_bytes(path.read_bytes()[:4096])


@pytest.mark.parametrize("create", [True, False], ids=["to-write", "to-read"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (text_file, "store.sqlite is a file of another program; give another --store path"),
        (another_programs_database, "store.sqlite is a database of another program; give another --store path"),
        (truncated_store, "store.sqlite is damaged .*; restore it from a copy or give another --store path"),
        (newer_store, f"newer directloss .format {FORMAT + 1}, this one reads {FORMAT}.; upgrade directloss or give"),
    ],
)
def test_files_of_others_are_refused_and_left_as_they_are(make, message, create, path):
    make(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=message):
        Store(path, create)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", [".", "missing/store.sqlite", "file/store.sqlite", "fifo"])
def test_a_path_that_cannot_be_a_file_is_refused(where, tmp_path):
    (tmp_path / "file").write_text("in the way")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match=r"cannot use .* as a results store .*; give another --store path"):
        Store(tmp_path / where)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["fifo", "file"]


def test_a_newer_format_counts_while_it_is_in_the_write_ahead_log(path):
    Store(path).close()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute(f"PRAGMA user_version={FORMAT + 1}")
    assert int.from_bytes(path.read_bytes()[60:64], "big") == FORMAT
    for create in (True, False):
        with pytest.raises(UserError, match=f"format {FORMAT + 1}.*upgrade directloss"):
            Store(path, create)
    writer.close()


@pytest.mark.parametrize("column", ["config", "result"])
@pytest.mark.parametrize("text", ["{", "[1]", "", "nonsense"])
def test_a_damaged_row_is_named_with_what_removes_it(column, text, path):
    store = Store(path)
    store.add(KEY, [(0, result(0))])
    store.add(OTHER, [(0, result(0))])
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE results SET {column} = ? WHERE config_hash = ?", (text, str(KEY)))
    with pytest.raises(UserError, match=f"damaged row.*directloss results delete {KEY} "):
        list(store.rows())
    assert store.finished(OTHER) == {0}
    store.delete(str(KEY))
    assert len(list(store.rows())) == 1


@pytest.fixture
def read_only(tmp_path):
    """A folder that takes no file, not even root's."""
    folder = tmp_path / "medium"
    folder.mkdir()
    yield folder
    subprocess.run(["umount", "--lazy", folder], capture_output=True)


@pytest.mark.parametrize("unfinished", [False, True], ids=["closed", "with-a-log"])
def test_a_store_on_a_read_only_medium_is_read_with_its_log(unfinished, read_only):
    path = read_only / "store.sqlite"
    store = Store(path)
    store.add(KEY, [(0, result(0))])
    copy = {file: file.read_bytes() for file in read_only.iterdir()}
    store.close()
    if unfinished:  # as a killed writer leaves it
        for file, content in copy.items():
            file.write_bytes(content)
        assert path.with_name("store.sqlite-wal").stat().st_size
        path.with_name("store.sqlite-shm").unlink()
    for options in (["--bind", read_only, read_only], ["-o", "remount,ro,bind", read_only]):
        subprocess.run(["mount", *options], capture_output=True)
    try:
        (read_only / "probe").touch()
        pytest.skip("no read-only medium here: mounting takes root's rights")
    except OSError:
        pass
    with closing(Store(path, create=False)) as medium:
        assert [row.repetition for row in medium.rows()] == [0]


def test_reading_creates_nothing(path):
    with pytest.raises(UserError, match=r"no results at .*; run an experiment with --store .* first"):
        Store(path, create=False)
    assert not path.exists()


def write(path, first):
    """A process that adds every other repetition, and some that its neighbour adds too."""
    store = Store(path)
    for repetition in range(first, 200, 2):
        store.add(KEY, [(repetition, result(repetition)), (repetition + 1, result(repetition + 1))])


def test_processes_that_write_at_once_lose_and_double_nothing(path):
    Store(path).close()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write, args=(path, number % 2)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert repetitions(path) == list(range(201))


ENDLESS_WRITER = f"""
import sys
from itertools import count
from pathlib import Path
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_store import KEY, GROUP, result
from directloss.lab.store import Store
store = Store(Path(sys.argv[1]))
for group in count():
    store.add(KEY, [(n, result(n)) for n in range(group * GROUP, (group + 1) * GROUP)])
    print(group, flush=True)
"""


def test_a_killed_writer_leaves_whole_transactions(path):
    with subprocess.Popen([sys.executable, "-c", ENDLESS_WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        while (line := writer.stdout.readline().strip()) != "9":
            assert line, "the writer died by itself"
        writer.send_signal(signal.SIGKILL)
        reported = [9, *map(int, writer.stdout.read().split())]
    found = repetitions(path)
    assert len(found) % GROUP == 0
    assert found == list(range(len(found)))
    assert len(found) >= GROUP * (1 + max(reported))
    assert all(row["text"] == "x" * 200 for row in Store(path).rows())
    Store(path).add(KEY, [(len(found), result(0))])  # and the store goes on
    assert all(after - before == 1 for before, after in pairwise(repetitions(path)))


def test_a_file_is_written_with_its_folders(tmp_path):
    write_atomically(tmp_path / "a" / "b" / "file.json", json.dumps([1]))
    write_atomically(tmp_path / "a" / "b" / "file.bin", b"\0\1")
    assert (tmp_path / "a" / "b" / "file.json").read_text() == "[1]"
    assert (tmp_path / "a" / "b" / "file.bin").read_bytes() == b"\0\1"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*file: No space left on device; give another path"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"cannot write .*; give another path"):
            write_atomically(path, "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
