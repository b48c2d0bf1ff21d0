"""The command line as a user meets it: tables, files, resumption, and one line for what only the user can put right."""

import csv
import json
import sqlite3
from pathlib import Path

import distributed
import pytest

import directloss.judging.audit as judging_audit
from directloss.cli import main
from directloss.experiments import distribution, dynamics, sorting
from directloss.judging import drawing
from directloss.lab import figures
from directloss.lab import run as lab_run

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


pytestmark = pytest.mark.usefixtures("fewer_points")


def sort(**options):
    """The arguments of a small experiment."""
    small = {"recipe": "best", "sizes": "3,4", "methods": "direct1", "repetitions": 2, "epochs": 3}
    return ["sort", *(f"--{name}={value}" for name, value in {**small, **options}.items())]


def audit(**options):
    """The arguments of a small audit."""
    small = {"structure": "choice", "repetitions": 200, "epsilons": "-1,1"}
    return ["audit", *(f"--{name}={value}" for name, value in {**small, **options}.items())]


def trace(**options):
    """The arguments of a small figure 3."""
    small = {"sizes": "3,4", "methods": "direct1", "repetitions": 2, "epochs": 3}
    return ["dynamics", *(f"--{name}={value}" for name, value in {**small, **options}.items())]


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
    assert "recipe best, seed 0" in text
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
    cells = sorting.EXPERIMENT.cells(**{name: value})
    assert {getattr(cell, "max_epochs" if name == "epochs" else name) for cell in cells} == {value}
    assert len(cells) == 4 * 6


def test_dynamics_draws_the_figure(run, folder):
    arguments = "dynamics --sizes 3,4 --methods direct1 --repetitions 2 --epochs 3 --output out"
    assert "tables: out" in run(*arguments.split())
    names = ["dynamics.csv", "dynamics.png", "dynamics.svg", "rows.csv", "table.md"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == names
    assert len((folder / "out/dynamics.csv").read_text().splitlines()) == 1 + 2 * 2 * 3


def fail(*_, **__):
    raise AssertionError("computed again")


def test_dynamics_are_kept_in_the_store(run, folder, monkeypatch):
    assert "Rows: mine" in run(*trace(store="mine", output="first"))
    monkeypatch.setattr(dynamics, "trace", fail)
    run(*trace(store="mine", output="second"))
    for name in ("rows.csv", "dynamics.csv", "dynamics.svg", "dynamics.png"):
        assert (folder / "first" / name).read_bytes() == (folder / "second" / name).read_bytes()
    rows = json.loads(run("results", "export", "--format", "json", "--store", "mine"))
    cells = [(row["experiment"], row["size"], row["epsilon"], len(row["curve"])) for row in rows]
    assert sorted(cells) == [("dynamics", size, epsilon, 3) for size in (3, 4) for epsilon in (-12.0, 12.0)]


TRACES = {"epochs": 4, "repetitions": 3, "seed": 1, "methods": "direct0", "recipe": "best", "sizes": 5}


@pytest.mark.parametrize("name", TRACES)
def test_every_option_of_dynamics_asks_for_something_else(name, run, monkeypatch):
    run(*trace())
    monkeypatch.setattr(dynamics, "trace", fail)
    with pytest.raises(AssertionError, match="computed again"):
        main(trace(**{name: TRACES[name]}))


def test_dynamics_go_on_with_what_is_missing(run, monkeypatch):
    run(*trace(sizes=3))
    trained, real = [], dynamics.trace

    def spy(config, *rest):
        trained.append((config.size, config.epsilon))
        return real(config, *rest)

    monkeypatch.setattr(dynamics, "trace", spy)
    run(*trace())
    assert trained == [(4, 12.0), (4, -12.0)]


def test_audit_shows_a_table_and_writes_it_and_a_figure(run, folder):
    printed = run(*audit(structure="matching", output="out/deep", store="mine"))
    assert "exact at σ = 1: loss" in printed
    assert "most signal for its cost at σ = 1: " in printed
    assert printed.endswith("Rows: mine, tables: out/deep\n")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│ scores" in line]
    assert [line[:5] for line in lines] == [
        ["scores", "1", "one, ε < 0", "-1", "1"],
        ["scores", "1", "both", "1", "1"],
        ["scores", "1", "one, ε > 0", "1", "1"],
    ]
    with open("out/deep/audit.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["target"], row["rule"], row["epsilon"]) for row in rows] == [
        (target, rule, epsilon)
        for rule, epsilon in (("one, ε < 0", "-1.0"), ("both", "1.0"), ("one, ε > 0", "1.0"))
        for target in ("scores", "scale")
    ]
    assert [f"{float(row['bias']):.4f}" for row in rows[::2]] == [line[5] for line in lines]
    assert (folder / "out/deep/audit.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (folder / "out/deep/audit.svg").read_text().rstrip().endswith("</svg>")


def test_a_finished_audit_is_read_from_the_store(run, folder, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda *_: None)
    first = run(*audit(output="first"))
    monkeypatch.setattr(judging_audit, "audit", fail)
    assert run(*audit(output="second")).replace("second", "first").split("tables")[0] == first.split("tables")[0]
    assert (folder / "first/audit.csv").read_text() == (folder / "second/audit.csv").read_text()
    (row,) = json.loads(run("results", "export", "--format", "json"))
    assert (row["experiment"], row["structure"], row["repetitions"], len(row["rows"])) == ("audit", "choice", 200, 6)
    with pytest.raises(AssertionError, match="computed again"):
        main(audit(seed=1))


def test_audit_as_json_is_one_list_and_nothing_else(run, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda *_: None)
    printed = run(*audit(scales=".5,1", samples="1,3"), "--json")
    assert printed.count("\n") == 1
    rows = json.loads(printed)
    numbers = ["bias", "bias_error", "deviation", "cosine", "signal", "zero", "seconds"]
    assert [list(row) for row in rows] == [["target", "scale", "rule", "epsilon", "sides", "samples", *numbers]] * 24
    assert {(row["scale"], row["samples"]) for row in rows} == {(0.5, 1), (0.5, 3), (1.0, 1), (1.0, 3)}
    assert all(0 <= row["zero"] <= 1 and -1 <= row["cosine"] <= 1 and row["bias_error"] >= 0 for row in rows)


AUDIT = {"structure": "subset", "size": 4, "k": 2}
CHANGES = {
    "structure": "choice",
    "size": 5,
    "k": 1,
    "scales": "2",
    "epsilons": "-1,2",
    "samples": "2",
    "repetitions": 300,
    "seed": 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_option_of_an_audit_changes_something(name, run, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda *_: None)
    one, other = (
        [{**row, "seconds": None} for row in json.loads(run(*audit(**options), "--json"))]
        for options in (AUDIT, {**AUDIT, name: CHANGES[name]})
    )
    assert one != other


def test_an_audit_without_epsilons_takes_its_own(run, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda *_: None)
    rows = json.loads(run(*audit(epsilons="", repetitions=50), "--json"))
    assert len({row["epsilon"] for row in rows}) == 16
    assert len(rows) == 2 * (8 + 8 + 8)


@pytest.mark.parametrize("options", [{"scales": "0"}, {"epsilons": "1e-9"}], ids=str)
def test_an_audit_in_which_every_bias_is_zero_is_drawn(options, run):
    assert "tables: out" in run(*audit(size=2, output="out", **options))


def made_rows(scales, samples):
    numbers = {"bias": 0.1, "bias_error": 0.01, "deviation": 1.0, "cosine": 0.0, "zero": 0.0}
    return [
        {"target": target, "rule": "both", "scale": scale, "samples": count, "epsilon": epsilon, **numbers}
        for target in ("scores", "scale")
        for scale in scales
        for count in samples
        for epsilon in (1.0, 2.0)
    ]


def test_the_figure_of_an_audit_has_a_line_for_each_setting():
    figure = drawing.draw(made_rows([1.0, 2.0], [1, 5]))
    axes = figure.axes
    assert len(axes) == 8
    labels = ["both, σ = 1", "both, σ = 1, 5 samples", "both, σ = 2", "both, σ = 2, 5 samples"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
    assert len({line.get_linestyle() for line in axes[3].lines}) == 4


def test_the_figure_of_an_audit_has_a_line_for_each_of_many_settings():
    assert len(drawing.draw(made_rows([0.5, 1.0, 2.0], [1, 5])).axes[3].lines) == 6


def test_the_figure_of_an_audit_shows_a_cosine_of_zero():
    assert drawing.draw(made_rows([1.0], [1])).axes[2].lines[0].get_ydata().tolist() == [0, 0]


def made_traces(sizes):
    curve = [{"epoch": epoch, "loss": 1.0, "y": 50.0, "y_eps": 60.0} for epoch in range(2)]
    return [{"method": "dsl", "size": size, "epsilon": -12.0, "curve": curve} for size in sizes]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_figure_is_the_same_file(kind):
    one, other = (figures.to_bytes(dynamics.draw(made_traces([3])), kind) for _ in range(2))
    assert one == other


def test_dynamics_of_many_sizes_are_drawn():
    assert [len(axis.lines) for axis in dynamics.draw(made_traces(range(2, 12))).axes] == [10] * 3


def test_distribution_writes_figure_1_once_and_reads_it_from_the_store(run, folder, monkeypatch):
    monkeypatch.setattr(distribution, "SIGMAS", (0.0, 1.0, 20.0))
    assert "Rows: mine, tables: out" in run("distribution", "--output", "out", "--store", "mine")
    names = ["distribution.csv", "distribution.png", "distribution.svg", "rows.csv", "table.md"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == names
    with open("out/distribution.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["structure"], row["sigma"]) for row in rows] == [
        (structure, sigma) for structure in ("matching", "subset") for sigma in ("0.0", "1.0", "20.0")
    ]
    for still, near, wide in (rows[:3], rows[3:]):
        assert still["distance"] == ""
        assert float(near["closest_distance"]) > 10 * float(near["error"])
        assert max(json.loads(still["probabilities"])) == 1
        assert max(json.loads(near["probabilities"])) > max(json.loads(wide["probabilities"]))
    monkeypatch.setattr(distribution, "sweep", fail)
    run("distribution", "--output", "again", "--store", "mine")
    assert (folder / "out/distribution.csv").read_text() == (folder / "again/distribution.csv").read_text()
    with pytest.raises(AssertionError, match="computed again"):
        main(["distribution", "--store", "other"])


FILES = {
    "unknown.toml": "[sort]\nsizes = [3]\ncolour = 1\n",
    "names.toml": '[data.fetch]\nnames = "digits"\n[results.delete]\nkey = "abcd"\n[results.export]\nformat = 1\n',
    "outside.toml": "sizes = [3]\n[sort]\nepochs = 3\n",
    "number.toml": "[sort]\nsizes = 3\n[knn]\nk = 3\n[report]\nstore = 3\n[results.list]\ncolour = 1\n",
    "types.toml": '[sort]\nepochs = "many"\n[knn]\nmethods = [true]\n[dynamics]\nseed = 1.5\n[audit]\njson = 1\n',
    "broken.toml": "[sort\n",
    "notes.txt": "nothing like a database, and longer than the header of one would be\n" * 20,
}
BAD = {
    "sort --sizes 1": "--sizes has 1; expected at least 2",
    "sort --sizes 5,x": "--sizes has 'x'; expected whole numbers with commas, e.g. 5,10,25",
    "sort --methods dsl,magic": "--methods has 'magic'; choose from direct0, direct1, dsl, gumbel-sinkhorn",
    "sort --recipe cake": "--recipe has 'cake'; choose from paper, best",
    "sort --cost free": "--cost has 'free'; choose from weighted-column, ",
    "sort --executor cloud": "--executor has 'cloud'; choose from local, dask",
    "sort --jobs 0": "--jobs is 0; expected at least 1",
    "sort --jobs many": "Invalid value for --jobs: 'many' is not a whole number",
    "sort --threads 0": "--threads is 0; expected at least 1",
    "sort --repetitions 0": "--repetitions is 0; expected at least 1",
    "sort --samples 0": "--samples is 0; expected at least 1",
    "sort --epochs 0": "--epochs is 0; expected at least 1",
    "sort --epsilon 0": "--epsilon is 0.0; expected a finite number other than 0",
    "sort --epsilon nan": "--epsilon is nan; expected a finite number",
    "sort --executor dask": "--executor dask needs --address, e.g. tcp://scheduler:8786",
    "sort --executor dask --address tcp://127.0.0.1:1": "no dask scheduler answers at tcp://127.0.0.1:1 (OSError)",
    "sort --executor dask --address nowhere": "no dask scheduler answers at nowhere",
    "sort --store other.sqlite": "other.sqlite is a database of another program; give another --store path",
    "sort --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "sort --store .": "cannot use . as a results store",
    "sort --store notes.txt/store.sqlite": "cannot use notes.txt/store.sqlite as a results store",
    "sort --config missing.toml": "cannot read missing.toml: No such file or directory; give --config an existing file",
    "sort --config unknown.toml": "unknown.toml sets the unknown option colour; see directloss sort --help",
    "sort --config outside.toml": "outside.toml sets sizes outside a command's table; put it under [sort]",
    "sort --config number.toml": "number.toml sets sizes = 3; expected a list, e.g. [3], or text with commas",
    "knn --config number.toml": "number.toml sets k = 3; expected a list",
    "report --config number.toml": "number.toml sets store = 3; expected text",
    "results list --config number.toml": "number.toml sets the unknown option colour; see directloss results list",
    "sort --config types.toml": "types.toml sets epochs = 'many'; expected a whole number",
    "knn --config types.toml": "types.toml sets methods = [True]; expected a list",
    "dynamics --config types.toml": "types.toml sets seed = 1.5; expected a whole number",
    "audit --config types.toml": "types.toml sets json = 1; expected true or false",
    "data fetch --config names.toml": "names.toml sets the unknown option names; see directloss data fetch --help",
    "results delete abcd --config names.toml": "names.toml sets the unknown option key",
    "results export --config names.toml": "names.toml sets format = 1; expected text",
    "distribution --config missing.toml": "cannot read missing.toml",
    "data list --config outside.toml": "outside.toml sets sizes outside a command's table; put it under [data]",
    "sort --methods mine:loss": "mine:loss: there is no module mine here; run where mine.py is, or install it",
    "sort --methods json:loss": "json:loss: the module json has no 'loss'; give module:name",
    "knn --methods json:loss": "json:loss: the module json has no 'loss'",
    "audit --loss json:loss": "json:loss: the module json has no 'loss'",
    "audit --structure mine:structure": "mine:structure: there is no module mine here",
    "sort --config broken.toml": "broken.toml is not valid TOML: Expected ']' at the end of a table declaration",
    "sort --colour red": "Unknown option: --colour",
    "sort everything": "everything",
    "audit --structure foo": "--structure has 'foo'; choose from matching, subset, choice",
    "audit --size 1": "--size is 1; expected at least 2",
    "audit --size 8": "Matching() over (8, 8) has 40,320 structures, more than the 5,040 that are enumerated; take a",
    "audit --structure subset --size 20 --k 10": "Subset(k=10) over (20,) has 184,756 structures, more than the 5,040",
    "audit --structure choice --size 5041": "--size is 5041, more than the 5,040 structures; take a smaller one",
    "audit --structure subset --k 0": "--k is 0; expected 1 to 2, fewer than --size",
    "audit --structure subset --k 3": "--k is 3; expected 1 to 2, fewer than --size",
    "audit --scales x": "--scales has 'x'; expected numbers with commas",
    "audit --scales=-1": "--scales has '-1'; expected numbers of magnitude at most 1e+30, from 0",
    "audit --scales ,": "--scales is empty; give one or more, with commas",
    "audit --scales inf": "--scales has 'inf'; expected numbers of magnitude at most 1e+30",
    "audit --epsilons 0": "--epsilons has 0; expected numbers other than 0",
    "audit --epsilons 1,one": "--epsilons has 'one'; expected numbers with commas",
    "audit --epsilons nan": "--epsilons has 'nan'; expected numbers of magnitude at most 1e+30",
    "audit --samples 0": "--samples has '0'; expected numbers of magnitude at most 1e+30, from 1",
    "audit --samples 1.5": "--samples has '1.5'; expected whole numbers from 1 with commas, e.g. 1,5",
    "audit --repetitions 1": "--repetitions is 1; expected at least 2",
    "audit --repetitions many": "Invalid value for --repetitions: 'many' is not a whole number",
    "audit --output notes.txt": "cannot write to the folder notes.txt: Not a directory; give another path",
    "audit --output notes.txt/deep": "cannot write to the folder notes.txt/deep: Not a directory; give another path",
    "audit --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "audit --colour red": "Unknown option: --colour",
    "distribution --output notes.txt": "cannot write to the folder notes.txt: Not a directory; give another path",
    "distribution --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "distribution --sizes 3": "Unknown option: --sizes",
    "dynamics --sizes 1": "--sizes has 1; expected at least 2",
    "dynamics --sizes 3 --repetitions 0": "--repetitions is 0; expected at least 1",
    "dynamics --sizes 3 --epochs 0": "--epochs is 0; expected at least 1",
    "dynamics --sizes 3 --methods gumbel-sinkhorn": "--methods has 'gumbel-sinkhorn'; choose from direct0",
    "dynamics --sizes 3 --recipe cake": "--recipe has 'cake'; choose from paper, best",
    "dynamics --sizes 3 --output notes.txt": "cannot write to the folder notes.txt: Not a directory; give another path",
    "dynamics --sizes 3 --store notes.txt": "notes.txt is a file of another program; give another --store path",
    "dance": 'Unknown command "dance". Available commands: sort, knn',
    "audit --size 3.5": "Invalid value for --size: '3.5' is not a whole number of at most 18 digits.",
    "audit --seed 99999999999999999999": "Invalid value for --seed: '99999999999999999999' is not a whole number",
    "audit --size 12": "--size is 12: Matching() over (12, 12) has 479,001,600 structures, more than the 5,040",
    "audit --size 2000": "--size is 2000: Matching() over (2000, 2000) has about 10^5736 structures",
    "audit --size 999999999": "--size is 999999999, more than the 5,040",
    "audit --structure choice --epsilons 1e200": "--epsilons has '1e200'; expected numbers of magnitude at most 1e+30",
    "audit --structure choice --scales 1e200": "--scales has '1e200'; expected numbers of magnitude at most 1e+30",
    "audit --store notes.txt --output new/er": "notes.txt is a file of another program",
    "dynamics --sizes 3 --store notes.txt --output new": "notes.txt is a file of another program",
    "distribution --store notes.txt --output new": "notes.txt is a file of another program",
    "sort --store notes.txt --output new": "notes.txt is a file of another program",
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

    monkeypatch.setattr(lab_run, "run", interrupted)
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


def test_exported_results_are_imported_as_they_were_and_only_once(run):
    run(*sort())
    run("results", "export", "--format", "json", "--output", "rows.json")
    assert run("results", "import", "rows.json", "--store", "other.db") == (
        "Imported 4 repetitions; 0 were there already.\n"
    )
    assert json.loads(run("results", "export", "--format", "json", "--store", "other.db")) == json.loads(
        Path("rows.json").read_text()
    )
    # Nothing is left to train: the same command finds every repetition.
    assert run(*sort(store="other.db"), "--json") == run(*sort(), "--json")
    assert run("results", "import", "rows.json", "--store", "other.db") == (
        "Imported 0 repetitions; 4 were there already.\n"
    )


BAD_FILES = {
    "{}": "it is dict, expected a list of rows",
    "[": "is not what results export --format json writes",
    "[3]": "a row is of the experiment 3, expected of",
    '[{"experiment": "swimming"}]': "a row is of the experiment 'swimming', expected of sorting",
    '[{"experiment": "sorting", "repetition": "0"}]': "a row has repetition '0', expected of type int",
    '[{"experiment": "sorting", "repetition": 0, "code": "a", "finished": "b", "method": "dsl", "size": 5}]': (
        "what is not a result of sorting"
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.items())
def test_a_file_that_is_not_of_results_is_refused_whole(run, capfd, text, message):
    Path("rows.json").write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main(["results", "import", "rows.json"])
    assert stopped.value.code == 2
    assert message in capfd.readouterr().err
    assert not Path("directloss.sqlite").exists()


def test_processes_give_the_table_of_one(table):
    assert table(*sort(jobs=2, store="two.sqlite")) == table(*sort(store="one.sqlite"))


def test_a_dask_cluster_gives_the_table_of_one_process(table):
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        spread = table(*sort(executor="dask", address=cluster.scheduler_address, store="dask.sqlite"))
    assert spread == table(*sort(store="one.sqlite"))
