"""The command line as a user meets it: tables, files, resumption, and one line for what only the user can put right."""

import csv
import json
import signal
import sqlite3
import subprocess
import sys
import time

import distributed
import pytest

from directloss.cli import main
from directloss.experiments import sort_command

KEYS = [
    "method",
    "size",
    "recipe",
    "repetitions",
    "perfect",
    "wrong_mean",
    "wrong_std",
    "kendall_tau",
    "epochs_mean",
    "seconds_per_epoch",
]


def sort(**options):
    """The arguments of a small experiment."""
    small = {"recipe": "best", "sizes": "3,4", "methods": "direct1", "repetitions": 2, "epochs": 3}
    return ["sort", *(f"--{name}={value}" for name, value in {**small, **options}.items())]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capfd):
    """Run a command that succeeds; return what it prints."""

    def call(*arguments):
        main([str(argument) for argument in arguments])
        printed = capfd.readouterr()
        assert not printed.err
        return printed.out

    return call


@pytest.fixture
def table(run):
    """Run a command with --json; return its table without the times."""
    return lambda *arguments: [{**line, "seconds_per_epoch": None} for line in json.loads(run(*arguments, "--json"))]


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_json_is_one_list_with_a_line_for_each_cell_and_nothing_else(run):
    printed = run(*sort(methods="gumbel-sinkhorn,direct1"), "--json")
    lines = json.loads(printed)
    assert printed.count("\n") == 1
    assert [list(line) for line in lines] == [KEYS] * 4
    cells = [("direct1", 3), ("direct1", 4), ("gumbel-sinkhorn", 3), ("gumbel-sinkhorn", 4)]
    assert [(line["method"], line["size"]) for line in lines] == cells
    for line in lines:
        assert (line["recipe"], line["repetitions"], line["epochs_mean"]) == ("best", 2, 3.0)
        assert 0 <= line["perfect"] <= 100
        assert 0 <= line["wrong_mean"] <= 100
        assert line["seconds_per_epoch"] > 0


def test_a_table_shows_what_was_asked_for_and_not_what_else_is_there(table):
    first = table(*sort())
    assert table(*sort(seed=1, sizes=3))[0]["repetitions"] == 2
    assert [line["repetitions"] for line in table(*sort(repetitions=3))] == [3, 3]
    assert table(*sort()) == first


def test_output_gets_the_rows_and_the_table(run, folder):
    printed = run(*sort(output="out/deep"))
    assert "Rows: directloss.sqlite, tables: out/deep" in printed
    with open("out/deep/rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["size"], row["repetition"]) for row in rows] == [("3", "0"), ("3", "1"), ("4", "0"), ("4", "1")]
    text = (folder / "out/deep/table.md").read_text()
    assert "seed: 0" in text
    assert [line.split(" | ")[:3] for line in text.splitlines()[-2:]] == [
        ["| direct1", "3", "2"],
        ["| direct1", "4", "2"],
    ]


def test_the_command_line_goes_over_the_file_over_the_default(table, run, folder):
    (folder / "config.toml").write_text(
        '[sort]\nsizes = [3]\nmethods = "direct1"\nrecipe = "best"\nrepetitions = 3\nepochs = 2\nstore = "mine"\n'
    )
    (line,) = table("sort", "--config", "config.toml", "--repetitions", "2")
    assert (line["size"], line["recipe"], line["repetitions"], line["epochs_mean"]) == (3, "best", 2, 2.0)
    rows = json.loads(run("results", "export", "--format", "json", "--store", "mine"))
    assert [row["seed"] for row in rows] == [0, 0]
    assert not (folder / "directloss.sqlite").exists()


OVERRIDES = {"cost": "hamming", "samples": 7, "epsilon": 3.0, "epochs": 9, "fresh": True, "seed": 5, "recipe": "best"}


@pytest.mark.parametrize(("name", "value"), OVERRIDES.items())
def test_every_choice_reaches_every_cell(name, value):
    cells = sort_command.read_cells(sort_command.read_options({name: value}, None))
    assert {getattr(cell, "max_epochs" if name == "epochs" else name) for cell in cells} == {value}
    assert len(cells) == 4 * 6


def test_dynamics_draws_the_figure(run, folder):
    arguments = "dynamics --sizes 3,4 --methods direct1 --repetitions 2 --epochs 3 --output out"
    assert "Wrote out/dynamics.csv" in run(*arguments.split())
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["dynamics.csv", "dynamics.png", "dynamics.svg"]
    assert len((folder / "out/dynamics.csv").read_text().splitlines()) == 1 + 2 * 2 * 3


FILES = {
    "unknown.toml": "[sort]\nsizes = [3]\ncolour = 1\n",
    "broken.toml": "[sort\n",
    "notes.txt": "nothing like a database, and longer than the header of one would be\n" * 20,
}
BAD = {
    "sort --sizes 1": "--sizes has 1; there is nothing to sort below 2",
    "sort --sizes 5,x": "--sizes has 'x'; expected whole numbers with commas, e.g. 5,10,25",
    "sort --methods dsl,magic": "--methods has 'magic'; choose from direct0, direct1, dsl, gumbel-sinkhorn",
    "sort --recipe cake": "--recipe has 'cake'; choose from paper, best",
    "sort --cost free": "--cost has 'free'; choose from weighted-column, ",
    "sort --executor cloud": "--executor has 'cloud'; choose from local, dask",
    "sort --jobs 0": "--jobs is 0; expected at least 1",
    "sort --jobs many": '--jobs: unable to convert "many" into int',
    "sort --threads 0": "--threads is 0; expected at least 1",
    "sort --repetitions 0": "--repetitions is 0; expected at least 1",
    "sort --samples 0": "--samples is 0; expected at least 1",
    "sort --epochs 0": "--epochs is 0; expected at least 1",
    "sort --epsilon 0": "--epsilon is 0.0; expected a finite number other than 0",
    "sort --epsilon nan": "--epsilon is nan; expected a finite number other than 0",
    "sort --executor dask": "--executor dask needs --address, e.g. tcp://scheduler:8786",
    "sort --executor dask --address tcp://127.0.0.1:1": "no dask scheduler answers at tcp://127.0.0.1:1 (OSError)",
    "sort --executor dask --address nowhere": "no dask scheduler answers at nowhere",
    "sort --store other.sqlite": "other.sqlite is a database of another program; give another --store path",
    "sort --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "sort --store .": "cannot use . as a results store",
    "sort --store notes.txt/store.sqlite": "cannot use notes.txt/store.sqlite as a results store",
    "sort --config missing.toml": "cannot read missing.toml: No such file or directory; give --config an existing file",
    "sort --config unknown.toml": "unknown.toml sets the unknown option colour; see directloss sort --help",
    "sort --config broken.toml": "broken.toml is not valid TOML: Expected ']' at the end of a table declaration",
    "sort --colour red": "Unknown option: --colour",
    "sort everything": "everything",
    "dance": 'Unknown command "dance". Available commands: results, data, sort',
    "results list": "no results at directloss.sqlite; run an experiment with --store directloss.sqlite first",
    "results export": "no results at directloss.sqlite",
    "results export --format xml": "--format is 'xml'; choose from csv, json",
    "results export --store other.sqlite": "other.sqlite is a database of another program",
    "results delete": "--key requires an argument",
    "results delete abc": "'abc' is too short to name a configuration; give at least 4 characters of its hash",
    "results delete abcd": "no results at directloss.sqlite",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_writes_nothing(command, folder, capfd, monkeypatch):
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with sqlite3.connect(folder / "other.sqlite") as db:
        db.execute("CREATE TABLE mine (number INTEGER)")
    db.close()
    patient = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: patient(address, timeout=timeout / 50))
    before = contents(folder)
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    printed = capfd.readouterr()
    assert stopped.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("directloss: ")
    assert printed.err.count("\n") == 1
    assert BAD[command] in printed.err
    assert contents(folder) == before


def test_an_interrupted_command_has_exit_code_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sort_command, "run", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["sort"])
    assert stopped.value.code == 130


def test_results_are_listed_exported_and_deleted(run, capfd):
    run(*sort())
    rows = json.loads(run("results", "export", "--format", "json"))
    assert [row["repetition"] for row in rows] == [0, 1, 0, 1]
    assert {row["epsilon"] for row in rows} == {12.0}
    printed = run("results", "export")
    assert [row["config_hash"] for row in csv.DictReader(printed.splitlines())] == [row["config_hash"] for row in rows]
    assert run("results", "export", "--output", "rows.csv") == ""
    with open("rows.csv") as file:
        assert file.read() == printed
    listed = run("results", "list")
    assert [row["config_hash"] in listed for row in rows] == [True] * 4
    assert run("results", "delete", rows[0]["config_hash"][:6]) == "Deleted 2 repetitions.\n"
    assert json.loads(run("results", "export", "--format", "json")) == rows[2:]
    with pytest.raises(SystemExit):
        main(["results", "delete", rows[0]["config_hash"]])
    assert "no configuration in directloss.sqlite starts with" in capfd.readouterr().err


def saved(path):
    """How many rows another process has saved so far."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_a_killed_run_goes_on_to_the_same_table(table, run, folder):
    killed, whole = (sort(sizes="3,4,5,6,7,8,9,10", epochs=60, store=f"{name}.sqlite") for name in ("killed", "whole"))
    with subprocess.Popen([sys.executable, "-m", "directloss", *killed]) as process:
        while not saved(folder / "killed.sqlite"):
            assert process.poll() is None, "it ended before it saved anything"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 0 < saved(folder / "killed.sqlite") < 16
    kept = json.loads(run("results", "export", "--store", "killed.sqlite", "--format", "json"))
    assert table(*killed) == table(*whole)
    rows = json.loads(run("results", "export", "--store", "killed.sqlite", "--format", "json"))
    assert all(row in rows for row in kept)
    assert len({(row["config_hash"], row["repetition"]) for row in rows}) == len(rows) == 16


def test_processes_give_the_table_of_one(table):
    assert table(*sort(jobs=2, store="two.sqlite")) == table(*sort(store="one.sqlite"))


def test_a_dask_cluster_gives_the_table_of_one_process(table):
    options = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        spread = table(*sort(executor="dask", address=cluster.scheduler_address, store="dask.sqlite"))
    assert spread == table(*sort(store="one.sqlite"))
