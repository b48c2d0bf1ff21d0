"""The examples run, with small sizes, and learn something."""

import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
HERE = (Path(os.environ.get("DIRECTLOSS_DATA_DIR", "nowhere")) / "letters").is_dir()
# With small sizes: what is printed, of which the numbers must be ordered.
SMALL = {
    "predict_then_optimise": (["--epochs", "2"], False),
    "my_integer_program": (["--epochs", "2"], False),
    "learning_to_rank": (["--epochs", "2"], True),
    "label_sequences": (["--epochs", "2", "--words", "100"], True),
}


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name, monkeypatch, capsys):
    options, needs_data = SMALL[name]
    if needs_data and not HERE:
        pytest.skip("the published files are not here")
    if name == "my_integer_program":
        pytest.importorskip("highspy")
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    numbers = [float(number) for number in re.findall(r"(?<![@\w])\d+(?:\.\d+)?", printed)]
    assert len(numbers) >= 2
    if name == "my_integer_program":
        assert numbers[-1] < numbers[0], "trained is better than untrained"


def test_the_notebook_runs(monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads((FOLDER / "predict_then_optimise.ipynb").read_text())["cells"]
    blocks = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    blocks[0], sizes = re.subn("EPOCHS, SEEDS = .*", "EPOCHS, SEEDS = 2, 2", blocks[0])
    assert sizes == 1
    names = {"__name__": "notebook"}
    for block in blocks:
        exec(compile(block, "notebook", "exec"), names)
    squares, direct, *compared, verdict, reinforce = capsys.readouterr().out.splitlines()
    assert all("% more than the best" in line for line in (squares, direct, reinforce))
    assert len(compared) == 4
    assert "over 2 seeds" in verdict


def test_every_example_is_run():
    assert [path.stem for path in FOLDER.glob("*.ipynb")] == ["predict_then_optimise"]
    assert {path.stem for path in FOLDER.glob("*.py")} == {*SMALL, "my_experiment"}  # test_lab.py runs that one
