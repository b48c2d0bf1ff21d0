"""The lab: a declaration is enough, a user's own methods train beside ours, and one table has four faces."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import directloss as dl
from directloss.cli import main
from directloss.experiments import all_declared, declared
from directloss.lab.run import main as run_program
from directloss.lab.run import run as run_experiment
from directloss.lab.store import Store
from directloss.lab.table import Column, Table, deviation, mean
from directloss.shown import to_csv

EXAMPLE = Path(__file__).parent.parent / "examples" / "my_experiment.py"
MINE = """
import torch
import directloss as dl

def each(scores, cost, structure, generator=None):
    options = {"epsilon": 12.0, "sides": "both", "scale": 0.1, "reduction": "none"}
    return dl.direct_loss(scores, cost, structure, **options, generator=generator)

def mean(scores, cost, structure, generator=None):
    return each(scores, cost, structure, generator).mean()

def entries(scores, cost, structure, generator=None):
    return scores.sum(-1)

def constant(scores, cost, structure, generator=None):
    return torch.zeros(())

structure = dl.Subset(2)

def of_size(size):
    return dl.Subset(size - 1)
"""
pytestmark = pytest.mark.usefixtures("fewer_points")
SMALL = ["sort", "--recipe=best", "--sizes=4", "--repetitions=3", "--epochs=20", "--json"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)


def lines(capsys, *arguments):
    main([*arguments])
    return json.loads(capsys.readouterr().out)


# A table


TABLE = Table.of(
    "numbers",
    (
        Column("name", "name"),
        Column("kind", "kind", setting=True),
        Column("share", "share %", mean("share", 100), "{:.1f}", lambda line: "50" if line["name"] == "a" else None),
        Column("_spread", "± std", deviation("share", 100), "{:.1f}", below=True),
        Column("count", "", len),
    ),
    [
        [{"name": "a", "kind": "x", "share": 0.25}, {"name": "a", "kind": "x", "share": 0.75}],
        [{"name": "b|", "kind": "x", "share": 1}],
    ],
)


def test_one_table_has_four_faces(capsys):
    assert json.loads(TABLE.to_json()) == [
        {"name": "a", "kind": "x", "share": 50.0, "count": 2},
        {"name": "b|", "kind": "x", "share": 100.0, "count": 1},
    ]
    assert TABLE.to_markdown().splitlines() == [
        "| name | share % | paper | ± std |",
        "| --- | --- | --- | --- |",
        "| a | 50.0 | 50 | 35.4 |",
        "| b\\| | 100.0 | - | 0.0 |",
    ]
    assert TABLE.to_html() == (
        ["name", "share %"],
        [[["a"], ["50.0", "paper 50", "35.4"]], [["b|"], ["100.0", "not in the paper", "0.0"]]],
    )
    assert TABLE.caption == "numbers. kind x"
    TABLE.print()
    printed = capsys.readouterr().out
    assert "kind x" in printed
    assert [cell.strip() for cell in printed.splitlines()[4].split("│")[1:-1]] == ["a", "50.0", "50", "35.4"]


def test_cells_that_a_spreadsheet_would_run_are_text():
    text = to_csv([{"a": "=1", "b": "@x", "c": "+y", "d": "-z", "e": -1.5, "f": [1], "g": "plain"}])
    assert text.splitlines()[1] == "'=1,'@x,'+y,'-z,-1.5,[1],plain"


# Declarations


@pytest.mark.parametrize("experiment", all_declared(), ids=lambda one: one.command)
def test_a_command_says_what_every_option_is(experiment, capsys):
    main([experiment.command, "--help"])
    printed = capsys.readouterr().out
    for name in (*experiment.options, "json", "jobs", "executor", "store", "output", "report", "config"):
        assert f"--{name.replace('_', '-')}" in printed


@pytest.mark.parametrize("experiment", all_declared(), ids=lambda one: one.command)
def test_the_command_of_a_cell_asks_for_that_cell(experiment):
    for cell in experiment.cells():
        options = {
            name: str(value) if name in ("sizes", "methods", "k", "seed", "data", "structures") else value
            for name, value in experiment.command_options(cell).items()
        }
        assert cell in experiment.cells(**options)
        assert experiment.changes(cell) == {}


def test_an_experiment_of_ones_own_gets_everything(folder, capfd):
    options = ["--epsilons=-4,4", "--steps=20", "--repetitions=2", "--jobs=2", "--json"]
    done = subprocess.run([sys.executable, EXAMPLE, *options], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    first = json.loads(done.stdout)

    def run(*arguments):
        """The same in this process, because starting one takes seconds."""
        code = 0
        try:
            run_program(runpy.run_path(str(EXAMPLE))["EXPERIMENT"], arguments)
        except SystemExit as stopped:
            code = stopped.code
        return code, *capfd.readouterr()

    assert [(line["epsilon"], line["repetitions"]) for line in first] == [(-4.0, 2), (4.0, 2)]
    (folder / "study.toml").write_text(
        '["my_experiment.py"]\nepsilons = [-4, 4]\nsteps = 20\nrepetitions = 2\njson = true\n'
    )
    assert json.loads(run("--config=study.toml")[1]) == first
    code, _, error = run("--epsilons=-4,4", "--steps=20", "--repetitions=3", "--output=out", "--report=page.html")
    assert (code, error) == (0, "")
    assert "Top-2 choices learned rightly" in (folder / "page.html").read_text()
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["rows.csv", "table.md"]
    assert len(list(Store(folder / "directloss.sqlite", create=False).rows("epsilons"))) == 6
    assert run("--epsilons=0")[::2] == (
        2,
        "my_experiment.py: --epsilons has 0.0; expected a finite number other than 0\n",
    )


# Methods of one's own


def test_a_loss_of_ones_own_sorts(capsys):
    ours, each, mean = lines(capsys, *SMALL, "--methods=direct1,mine:each,mine:mean")
    assert [line["method"] for line in (ours, each, mean)] == ["direct1", "mine:each", "mine:mean"]
    assert {**each, "method": "", "seconds_per_epoch": 0} == {**mean, "method": "", "seconds_per_epoch": 0}
    assert each["wrong_mean"] < 50


def test_a_changed_source_is_trained_anew(capsys, folder):
    for source in (MINE, MINE, MINE.replace("12.0", "2.0")):
        (folder / "mine.py").write_text(source)
        sys.modules.pop("mine", None)
        lines(capsys, *SMALL, "--methods=mine:each")
    found = {row.methods for row in Store(folder / "directloss.sqlite").rows()}
    assert len(found) == 2
    assert "" not in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("entries", r"shape \(10, 4\); expected .* one for each instance, \(10,\)"),
        ("constant", "without a gradient"),
    ],
)
def test_a_loss_that_is_none_is_explained(name, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*SMALL, f"--methods=mine:{name}"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


def test_a_loss_of_ones_own_finds_neighbours(capsys):
    (line,) = lines(
        capsys,
        *["knn", "--data", "digits", "--k", "3", "--epochs", "1", "--width", "4", "--methods", "mine:each", "--json"],
    )
    assert line["accuracy"] > 60


def test_a_loss_and_a_structure_of_ones_own_are_audited(capsys):
    small = ["audit", "--repetitions=200", "--size=4", "--json"]
    own = lines(capsys, *small, "--loss=mine:each", "--structure=mine:structure")
    assert [line["target"] for line in own] == ["scores"]
    assert len(lines(capsys, *small, "--structure=mine:of_size", "--epsilons=-1,1")) == 6


# Results


def test_an_audit_reads_as_a_table_and_is_saved_and_drawn(folder):
    cost = dl.costs.hamming(torch.eye(3)[0])
    found = dl.audit(dl.direct_loss, torch.randn(3), cost, dl.Choice(), epsilons=[-1.0, 1.0], repetitions=50)
    assert repr(found).count("\n") == 1 + len(found.rows)
    assert "one, ε < 0" in repr(found)
    text = found.to_csv(folder / "audit.csv")
    assert (folder / "audit.csv").read_text() == text
    assert text.count("\n") == 1 + len(found.rows)
    assert len(found.plot().axes) == 8


SHOWN = {
    "sort": ({"recipe": "best", "sizes": "3,4", "methods": "direct0,dsl", "repetitions": 2, "epochs": 3}, 4, 5),
    "dynamics": ({"recipe": "best", "sizes": "3", "repetitions": 2, "epochs": 3}, 2, 3),
    "audit": ({"structure": "choice", "repetitions": 50, "epsilons": "-1,1"}, 6, 8),
    "distribution": ({"structures": "choice"}, 16, 2),
}


@pytest.mark.parametrize("command", SHOWN)
def test_the_result_of_an_experiment_reads_as_a_table_and_is_saved_and_drawn(command, folder):
    options, count, panels = SHOWN[command]
    found = run_experiment(declared(command), **options, store=folder / "results.sqlite")
    notes = declared(command).notes(found.rows)
    heading, header, *body = repr(found).splitlines()
    body, said = body[: len(body) - len(notes)], body[len(body) - len(notes) :]
    assert declared(command).title in heading
    assert len(body) == len(found.table.lines) == count
    assert said == notes
    assert {len(line) for line in body} == {len(header)}
    assert found.to_csv(folder / "rows.csv") == (folder / "rows.csv").read_text()
    assert found.to_csv().count("\n") == 1 + len(found.rows)
    assert len(found.plot().axes) == panels


def test_a_plot_without_a_declared_figure_shows_the_table():
    figure = run_experiment(
        declared("sort"), recipe="best", sizes="3,4", methods="direct0,dsl", repetitions=2, epochs=3
    ).plot()
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["perfect %", "misplaced %", "tau", "epochs", "ms/epoch"]
    assert [line.get_label() for line in figure.axes[0].lines] == ["direct0", "dsl"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines] == [[3, 4], [3, 4]]


# What is installed

CORE = """
import sys
extras = ("matplotlib", "rich", "joblib", "sklearn", "cyclopts", "jinja2", "pooch", "distributed")
sys.modules.update(dict.fromkeys(extras))  # as if they were not installed
import torch
import directloss as dl
assert dl.Matching().solve(torch.eye(3)).trace() == 3
dl.direct_loss(torch.zeros(2, 3, requires_grad=True), torch.rand(2, 3), dl.Choice(), epsilon=1.0).backward()
dl.NeighborLoss(1)(torch.rand(4, 2, requires_grad=True), torch.tensor([0, 0, 1, 1])).backward()
try:
    dl.DirectNeighborsClassifier
except ImportError as error:
    print(error)
"""


def test_the_core_solves_without_any_extra():
    done = subprocess.run([sys.executable, "-c", CORE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "dl.DirectNeighborsClassifier needs sklearn: pip install 'directloss[sklearn]'\n"
