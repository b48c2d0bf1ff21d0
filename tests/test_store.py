"""A store holds each finished repetition once and whole, whoever writes, and leaves the files of others alone."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise

import pytest

from directloss import files
from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.runs import FORMAT, Store, code_version, config_hash

CONFIG = {"method": "dsl", "size": 5, "seed": 0}
GROUP = 20  # repetitions in one transaction


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def result(repetition):
    return {"perfect": True, "wrong": repetition / 7, "text": "x" * 200}


def repetitions(path, config=CONFIG):
    return [row["repetition"] for row in Store(path).rows("test") if row["config_hash"] == config_hash("test", config)]


def test_every_finished_repetition_is_one_flat_row(path):
    Store(path).add("test", CONFIG, [(3, result(3)), (1, result(1))])
    rows = list(Store(path).rows())
    assert [row["repetition"] for row in rows] == [1, 3]
    for row in rows:
        finished = row.pop("finished")
        origin = {"experiment": "test", "config_hash": config_hash("test", CONFIG), "code": code_version()}
        assert row == {**origin, "repetition": row["repetition"], **CONFIG, **result(row["repetition"])}
        assert finished.endswith("+00:00")


def test_adding_twice_doubles_nothing_and_keeps_the_first(path):
    store = Store(path)
    store.add("test", CONFIG, [(0, result(0))])
    store.add("test", CONFIG, [(0, result(9)), (1, result(1))])
    assert repetitions(path) == [0, 1]
    assert next(store.rows())["wrong"] == 0


def test_finished_names_the_repetitions_of_one_configuration(path):
    store, other = Store(path), {**CONFIG, "seed": 1}
    store.add("test", CONFIG, [(0, result(0)), (5, result(5))])
    store.add("test", other, [(1, result(1))])
    store.add("another", CONFIG, [(2, result(2))])
    assert store.finished("test", CONFIG) == {0, 5}
    assert store.finished("test", dict(reversed(CONFIG.items()))) == {0, 5}
    assert store.finished("test", other) == {1}
    assert store.finished("test", {**CONFIG, "seed": 2}) == set()
    assert [row["repetition"] for row in store.rows("another")] == [2]
    assert [row["repetition"] for row in store.rows(key=config_hash("test", other)[:6])] == [1]


def test_delete_takes_the_configurations_that_start_with_the_key(path):
    store, other = Store(path), {**CONFIG, "seed": 1}
    for config in (CONFIG, other):
        store.add("test", config, [(0, result(0)), (1, result(1))])
    assert store.delete("not a hash") == 0
    assert store.delete(config_hash("test", CONFIG)[:6]) == 2
    assert store.finished("test", CONFIG) == set()
    assert store.finished("test", other) == {0, 1}


def test_a_hash_depends_on_everything_but_the_order():
    first = config_hash("test", CONFIG)
    assert first == config_hash("test", dict(reversed(CONFIG.items())))
    others = [config_hash("another", CONFIG), config_hash("test", {}), config_hash("test", {**CONFIG, "size": 6})]
    assert len({first, *others}) == 4


def test_a_failed_add_saves_nothing_of_it(path):
    store = Store(path)
    with pytest.raises(sqlite3.Error):
        store.add("test", CONFIG, [(0, result(0)), (object(), result(1))])
    store.add("test", CONFIG, [(2, result(2))])
    assert repetitions(path) == [2]


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


@pytest.mark.parametrize("create", [True, False], ids=["to-write", "to-read"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (text_file, "store.sqlite is a file of another program; give another --store path"),
        (another_programs_database, "store.sqlite is a database of another program; give another --store path"),
        (newer_store, f"newer directloss .format {FORMAT + 1}, this one reads {FORMAT}.; upgrade directloss or give"),
    ],
)
def test_files_of_others_are_refused_and_left_as_they_are(make, message, create, path):
    make(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=message):
        Store(path, create)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", [".", "missing/store.sqlite", "file/store.sqlite"])
def test_a_path_that_cannot_be_a_file_is_refused(where, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot use .* as a results store .*; give another --store path"):
        Store(tmp_path / where)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_reading_creates_nothing(path):
    with pytest.raises(UserError, match=r"no results at .*; run an experiment with --store .* first"):
        Store(path, create=False)
    assert not path.exists()


def write(path, first):
    """A process that adds every other repetition, and some that its neighbour adds too."""
    store = Store(path)
    for repetition in range(first, 200, 2):
        store.add("test", CONFIG, [(repetition, result(repetition)), (repetition + 1, result(repetition + 1))])


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
from test_store import CONFIG, GROUP, result
from directloss.runs import Store
store = Store(Path(sys.argv[1]))
for group in count():
    store.add("test", CONFIG, [(n, result(n)) for n in range(group * GROUP, (group + 1) * GROUP)])
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
    Store(path).add("test", CONFIG, [(len(found), result(0))])  # and the store goes on
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
