"""The rules by name: each can be called as its row says, and the table of truth says of known rules what is known."""

import json

import pytest
import torch

import directloss as dl
from directloss.errors import UserError
from directloss.experiments import audit, truth
from directloss.experiments.rules import FOUR, RULES, load_rule, parse_settings
from directloss.lab.experiment import Context


def cell(rule: str, structure: str, calls: int = 4000) -> list[dict]:
    config = truth.Config(rule=rule, structure=structure, calls=calls)
    ((_, result),) = truth.train(config, [0], Context())
    return result["rows"]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_takes_the_structures_and_settings_of_its_row(name):
    rule = RULES[name]
    assert set(rule.fits) <= set(FOUR)
    for structure in FOUR:
        instance = audit.draw_instance(structure, truth.SIZES[structure], 2, seed=0)
        if structure in rule.fits:
            audit.try_rule(name, instance, rule.settings)
        else:
            with pytest.raises(UserError):
                audit.try_rule(name, instance, rule.settings)


def test_every_layer_and_loss_has_a_row():
    """A rule that is public and takes a structure is in the table."""
    import inspect

    rules = {
        name
        for name, module in dl._PUBLIC.items()
        if module.startswith(("losses.", "layers.")) and inspect.isfunction(getattr(dl, name))
    }
    with_structure = {name for name in rules if "structure" in inspect.signature(getattr(dl, name)).parameters}
    assert with_structure <= set(RULES)


@pytest.mark.parametrize("structure", audit.STRUCTURES)
def test_an_instance_of_every_structure_has_a_cost_that_tells_structures_apart(structure):
    made, scores, cost = audit.draw_instance(structure, truth.SIZES[structure], 2, seed=1)
    losses = (made.enumerate(scores) * cost).flatten(1).sum(1)
    assert losses.min() < losses.max()
    assert torch.isfinite(cost).all()


def test_the_table_says_what_is_known():
    for row in cell("perturbed", "choice"):
        assert row["bias"] < 4 * row["bias_error"] or row["bias"] < 1e-6
    (row,) = [row for row in cell("identity", "chain", 2) if row["target"] == "part 1" and "none" in row["settings"]]
    assert row["zero"] == 1
    assert row["bias"] == pytest.approx(1)  # nothing, in lengths of the exact gradient
    scores = [row for row in cell("direct_loss", "subset") if row["target"] == "scores"]
    assert [row["settings"].split(", ")[0] for row in scores] == [
        "epsilon -0.5",
        "epsilon 0.5",
        "epsilon -2.0",
        "epsilon 2.0",
    ]
    assert all(row["direction"] > 0.8 for row in scores)


def test_rows_of_rules_that_do_not_fit_are_left_out():
    cells = truth.EXPERIMENT.cells(rules="sinkhorn,sparsemap", structures="matching,choice,spanning_tree")
    assert sorted((one.rule, one.structure) for one in cells) == [
        ("sinkhorn", "matching"),
        ("sparsemap", "choice"),
        ("sparsemap", "matching"),
        ("sparsemap", "spanning_tree"),
    ]


def test_the_command_makes_one_table_and_one_picture_and_resumes(tmp_path, monkeypatch, capsys):
    from directloss.cli import main

    monkeypatch.chdir(tmp_path)
    arguments = ["truth", "--rules=identity,sparsemap", "--structures=choice,matching", "--calls=3", "--output=out"]
    main([*arguments, "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert {(line["rule"], line["structure"]) for line in lines} == {
        (rule, structure) for rule in ("identity", "sparsemap") for structure in ("choice", "matching")
    }
    assert {"table.md", "truth.svg", "truth.png", "truth.csv"} <= {path.name for path in (tmp_path / "out").iterdir()}
    monkeypatch.setattr("directloss.judging.audit.audit", None)
    main(arguments)  # from the store


def test_settings_are_read_as_a_grid():
    assert parse_settings("temperature=.5,1; sides = one,both;baseline=false") == {
        "temperature": [0.5, 1],
        "sides": ["one", "both"],
        "baseline": [False],
    }
    assert parse_settings("") == {}
    for wrong in ("temperature", "temperature=", "=1", "a b=1"):
        with pytest.raises(UserError, match="expected name=value"):
            parse_settings(wrong)


def test_a_relaxed_subset_from_neuralsort_has_k_ones():
    y = load_rule("neuralsort_subset")(torch.randn(3, 5), dl.Subset(2), temperature=0.01)
    torch.testing.assert_close(y.sum(-1), torch.full((3,), 2.0))
