"""Whatever happens to a run, nothing is lost, doubled or different, and what only the user can put right is one line.

A short version; ``make torture`` runs the long one (DIRECTLOSS_TORTURE=1).
"""

import json
import random
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from processes import LONG, start

SORT = [*["sort", "--recipe", "best", "--sizes", "3,4,5,6", "--methods", "direct1,dsl", "--repetitions", "6"]]
SORT += [*["--epochs", "40", "--threads", "1", "--json"]]
KNN = [*["knn", "--data", "digits", "--k", "3", "--methods", "dsl", "--width", "4", "--epochs", "6"]]
KNN += [*["--candidates", "200", "--threads", "1", "--json"]]
TIMES = ("seconds", "seconds_per_epoch", "seconds_per_query", "code", "finished")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, code=0, **options):
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    return out if code == 0 else err


def rows(store):
    """Everything a store holds but times, by configuration and repetition."""

    def timeless(value):
        if isinstance(value, dict):
            return {name: timeless(one) for name, one in value.items() if name not in TIMES}
        return [timeless(one) for one in value] if isinstance(value, list) else value

    with sqlite3.connect(store) as db:
        found = db.execute("SELECT config_hash, repetition, config, result FROM results").fetchall()
    assert len({row[:2] for row in found}) == len(found)
    return {row[:2]: [timeless(json.loads(text)) for text in row[2:]] for row in found}


KILLS = [
    *[pytest.param(SORT, [], id=f"sort-{number}") for number in range(16 if LONG else 1)],
    *[pytest.param(SORT, ["--jobs", "2"], id=f"sort-2-jobs-{number}") for number in range(12 if LONG else 1)],
    *[pytest.param(KNN, [], id=f"knn-{number}") for number in range(12 if LONG else 1)],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the commands give if nobody disturbs them, and how long they take to their first row or checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    found = {}
    for command in (SORT, KNN):
        run(*command, "--store", "whole.sqlite", "--checkpoints=c" if command is KNN else "--jobs=1", cwd=folder)
        found[command[0]] = rows(folder / "whole.sqlite")
    return found


@pytest.mark.parametrize(("command", "options"), KILLS)
def test_a_killed_run_goes_on_to_the_same_rows(command, options, whole, request):
    """Killed at a random moment: after so many rows or checkpoints, and some milliseconds more."""
    chance = random.Random(request.node.name)
    options = [*options, "--store", "killed.sqlite"]
    process = start(*command, *options)
    progress = chance.randrange(1, 5)

    def reached():
        if command is KNN:
            saved = [path.stat().st_mtime_ns for path in Path().glob("checkpoints/*.pt")]
            reached.seen |= set(saved)
            return len(reached.seen) >= progress
        try:
            with sqlite3.connect("file:killed.sqlite?mode=ro", uri=True) as db:
                return db.execute("SELECT count(*) FROM results").fetchone()[0] >= 6 * progress
        except sqlite3.OperationalError:
            return False

    reached.seen = set()
    while not reached() and process.poll() is None:
        time.sleep(0.002)
    time.sleep(chance.random() * (0.0 if chance.random() < 0.5 else 0.2))
    if process.poll() is None:
        process.kill()
    process.wait()
    before = rows("killed.sqlite") if Path("killed.sqlite").exists() and reached() and command is not KNN else {}
    run(*command, *options)
    after = rows("killed.sqlite")
    assert after == {key: value for key, value in whole[command[0]].items() if key in after}
    assert len(after) == (48 if command is SORT else 1)
    assert all(after[key] == value for key, value in before.items())


# Disks and folders


def test_a_full_disk_is_one_line_and_loses_nothing():
    run(*SORT, "--store", "full.sqlite")
    before = rows("full.sqlite")
    size = Path("full.sqlite").stat().st_size

    error = run(*SORT, "--seed", 1, "--store", "full.sqlite", code=2, limit=size)
    assert error.count("\n") == 1
    assert "check its disk, or give another --store path" in error
    assert rows("full.sqlite").items() >= before.items()
    run(*SORT, "--seed", 1, "--store", "full.sqlite")
    assert len(rows("full.sqlite")) == 2 * len(before)


def test_a_disk_that_is_full_for_a_checkpoint_is_one_line():
    error = run(*KNN, code=2, limit=40_000)
    assert error.count("\n") == 1
    assert "give another path" in error
    assert not list(Path("checkpoints").iterdir())
    run(*KNN)


def test_a_read_only_folder_is_one_line(folder):
    (folder / "medium").mkdir()
    mounts = (["--bind", "medium", "medium"], ["-o", "remount,ro,bind", "medium"])
    if any(subprocess.run(["mount", *options], capture_output=True).returncode for options in mounts):
        pytest.skip("mounting takes root's rights")
    try:
        for arguments in (["--store", "medium/store.sqlite"], ["--output", "medium/out"]):
            error = run(*SORT, *arguments, code=2)
            assert error.count("\n") == 1
            assert "give another" in error
    finally:
        subprocess.run(["umount", "--lazy", "medium"], check=True)


def test_two_writers_and_a_reader_share_a_store(whole):
    writers = [start(*SORT, "--store", "shared.sqlite") for _ in range(2)]
    seen = []
    while any(writer.poll() is None for writer in writers):
        if Path("shared.sqlite").exists():
            process = start("results", "export", "--format", "json", "--store", "shared.sqlite")
            out, error = process.communicate(timeout=120)
            assert process.returncode == 0 or "no results" in error, error
            seen.append(len(json.loads(out)) if process.returncode == 0 else 0)
        time.sleep(0.1)
    assert [writer.returncode for writer in writers] == [0, 0], [writer.communicate() for writer in writers]
    assert seen == sorted(seen)
    assert rows("shared.sqlite") == whole["sort"]


# Damage


def truncated(content, chance):
    return content[: chance.randrange(1, len(content))]


def flipped(content, chance):
    """A page of noise."""
    start = chance.randrange(0, max(1, len(content) // 4096)) * 4096
    return content[:start] + chance.randbytes(min(4096, len(content) - start)) + content[start + 4096 :]


def zeroed(content, chance):
    start = chance.randrange(0, max(1, len(content) // 4096)) * 4096
    return content[:start] + bytes(min(4096, len(content) - start)) + content[start + 4096 :]


@pytest.mark.parametrize("damage", [truncated, flipped, zeroed])
@pytest.mark.parametrize("number", range(5 if LONG else 1))
def test_a_damaged_store_is_refused_in_one_line_or_is_whole(damage, number, whole_store):
    """What the damage spares is read as it was; a traceback, or fewer rows without a word, never."""
    content, expected = whole_store
    path = Path("damaged.sqlite")
    path.write_bytes(damage(content, random.Random(f"{damage.__name__} {number}")))
    before = path.read_bytes()
    for command in (["results", "list"], ["results", "export", "--format", "json"], ["report"], SORT):
        process = start(*command, "--store", path)
        out, error = process.communicate(timeout=120)
        assert "Traceback" not in error
        if process.returncode:
            assert (process.returncode, error.count("\n")) == (2, 1)
            assert path.read_bytes() == before
        elif command[1:2] == ["export"]:
            assert len(json.loads(out)) == expected


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    run(*SORT, "--store", "whole.sqlite", cwd=folder)
    return (folder / "whole.sqlite").read_bytes(), len(rows(folder / "whole.sqlite"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    run(*KNN, cwd=folder)
    (path,) = (folder / "checkpoints").iterdir()
    return path.name, path.read_bytes()


@pytest.mark.parametrize("damage", [truncated, flipped, zeroed])
@pytest.mark.parametrize("number", range(5 if LONG else 1))
def test_a_damaged_checkpoint_is_refused_in_one_line(damage, number, checkpoint):
    name, content = checkpoint
    Path("checkpoints").mkdir()
    path = Path("checkpoints", name)
    path.write_bytes(damage(content, random.Random(f"{damage.__name__} {number}")))
    before = path.read_bytes()
    error = run(*KNN, code=2)
    assert error.count("\n") == 1
    assert "delete it to start again" in error
    assert path.read_bytes() == before


# A cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A dask scheduler and two workers, as processes of their own. One test kills a worker, the next the scheduler."""
    folder = tmp_path_factory.mktemp("cluster")
    address = folder / "scheduler.json"
    options = ["--scheduler-file", str(address), "--no-dashboard"]
    listening = ["--port", "0", "--host", "127.0.0.1"]
    processes = [start(*listening, *options, module="distributed.cli.dask_scheduler", cwd=folder)]
    while not address.exists():
        time.sleep(0.05)
    worker = ["--nthreads", "1", "--no-nanny", *options]
    processes += [start(*worker, module="distributed.cli.dask_worker", cwd=folder) for _ in range(2)]
    yield processes, json.loads(address.read_text())["address"]
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for_rows(store, count, process):
    while process.poll() is None:
        try:
            with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as db:
                if db.execute("SELECT count(*) FROM results").fetchone()[0] >= count:
                    return
        except sqlite3.OperationalError:
            pass
        time.sleep(0.01)


def test_a_killed_dask_worker_costs_nothing(cluster, whole):
    (_, first, _), address = cluster
    process = start(*SORT, "--executor", "dask", "--address", address, "--store", "dask.sqlite")
    wait_for_rows("dask.sqlite", 6, process)
    first.kill()
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert rows("dask.sqlite") == whole["sort"]


def test_a_killed_dask_scheduler_is_one_line_and_the_same_command_goes_on(cluster, whole):
    (scheduler, *_), address = cluster
    command = [*SORT, "--executor", "dask", "--address", address, "--store", "dask.sqlite"]
    process = start(*command)
    wait_for_rows("dask.sqlite", 6, process)
    scheduler.kill()
    _, error = process.communicate(timeout=300)
    assert process.returncode == 2
    assert error.count("\n") == 1, error
    assert "the same command goes on" in error
    run(*SORT, "--store", "dask.sqlite")
    assert rows("dask.sqlite") == whole["sort"]


def test_evil_text_in_a_store_reaches_neither_terminal_nor_spreadsheet():
    run(*SORT, "--store", "evil.sqlite")
    evil = "\x1b[31m[bold red]=HYPERLINK(1)"
    with sqlite3.connect("evil.sqlite") as db:
        db.execute("UPDATE results SET code = ?", (evil,))
    listed = run("results", "list", "--store", "evil.sqlite")
    assert "\x1b" not in listed
    assert "[bold" in listed
    with sqlite3.connect("evil.sqlite") as db:
        db.execute("UPDATE results SET code = '=1+1', finished = '@SUM(A1)'")
    exported = run("results", "export", "--store", "evil.sqlite")
    assert ",'=1+1,'@SUM(A1)" in exported
    assert ",12.0," in exported or ",-12.0," in exported
