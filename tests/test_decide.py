"""directloss decide: each task is the published one, judged by what is known of it without training."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import directloss as dl
from directloss.cli import main
from directloss.errors import UserError
from directloss.experiments import decisions
from directloss.experiments.tasks import matching as digits
from directloss.experiments.tasks.synthetic import packings
from directloss.lab.experiment import load
from directloss.lab.methods import METHODS, Method

here = pytest.mark.skipif(
    not (Path(os.environ.get("DIRECTLOSS_DATA_DIR", "nowhere")) / "web-ranking").is_dir(),
    reason="the published files are not here",
)


def problem(task, seed=0, **options):
    config = replace(decisions.published(task, "spo+"), **options)
    return load(decisions.TASKS[task].make)(config, seed)


def lines(capsys, *arguments):
    main(["decide", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_true_expected_costs_of_the_path_task_lose_585_percent():
    """The floor of notebook 03: what noise alone costs, found elsewhere by enumeration of all 70 paths."""
    path = problem("path")
    assert (len(path.train), len(path.test)) == (1000, 1000)
    bernoulli = torch.from_numpy(np.random.RandomState(42).binomial(1, 0.5, (40, 5))).float()
    expected = ((path.test.features @ bernoulli.T / 5**0.5 + 3) ** 4 + 1) / 3.5**4
    lost = dl.regret(-expected, path.test.cost, path.structure, normalize=True)
    assert lost.item() == pytest.approx(0.0585, abs=5e-4)


def test_the_knapsack_has_871_packings_and_no_two_instances_in_both_parts():
    knapsack = problem("knapsack")
    assert len(knapsack.structure.vertices) == 871
    assert (len(knapsack.train), len(knapsack.test)) == (100, 1000)
    both = torch.cat([knapsack.train.features, knapsack.test.features])
    assert len(both.unique(dim=0)) == 1100


def test_packings_are_those_that_fit():
    weights = torch.tensor([[3.0, 2.0, 2.0], [1.0, 1.0, 3.0]], dtype=torch.float64)
    found = {tuple(row) for row in packings(weights, 4).int().tolist()}
    every = torch.cartesian_prod(*[torch.tensor([0, 1])] * 3)
    assert found == {tuple(row) for row in every.tolist() if ((weights @ torch.tensor(row).double()) <= 4).all()}


def test_other_data_are_drawn_for_each_seed():
    one, two, again = (problem("path", seed, degree=6, data_seed=-1, train=200) for seed in (0, 1, 0))
    assert len(one.train) == 200
    assert not torch.equal(one.train.cost, two.train.cost)
    assert torch.equal(one.test.cost, again.test.cost)
    _, cost = dl.data.shortest_path(1200, 5, (5, 5), 6, 0.5, 300)
    np.testing.assert_array_equal(one.test.cost, cost[-1000:])
    np.testing.assert_array_equal(one.train.cost, cost[:200])


@here
def test_least_squares_of_energy_prices_loses_what_is_known():
    """In closed form: 17 % and 11 % of the best value at capacities 60 and 120."""
    for capacity, known in ((60, 0.17), (120, 0.11)):
        energy = problem("energy", capacity=capacity)
        assert (len(energy.train), len(energy.validation), len(energy.test)) == (550, 100, 139)
        design, wanted = energy.train.features.reshape(-1, 8), -energy.train.cost.reshape(-1, 1)
        weights = torch.linalg.lstsq(torch.cat([design, torch.ones(len(design), 1)], 1), wanted).solution
        scores = (energy.test.features @ weights[:-1] + weights[-1]).squeeze(-1)
        lost = energy.metrics["regret"].measure(scores, energy.test, energy.structure)
        assert lost.item() == pytest.approx(known, abs=0.012)


@here
def test_the_cost_of_a_ranking_is_minus_its_ndcg():
    ranking = problem("ranking", net="linear")
    structure = ranking.structure_of(ranking.test)
    scores = torch.randn(ranking.test.cost.shape, generator=torch.Generator().manual_seed(0))
    mask, grades = ranking.test.given
    gained = -(ranking.test.cost * structure.solve(scores)).sum(-1)
    expected = dl.metrics.ndcg(scores, grades, mask=mask, without=0.0)
    torch.testing.assert_close(gained, expected)
    assert len(ranking.train) + len(ranking.validation) == 201


@here
def test_lightgbm_ranks_in_the_same_run(capsys, tmp_path, monkeypatch):
    pytest.importorskip("lightgbm")
    monkeypatch.chdir(tmp_path)
    options = ["--losses=lambdarank,least-squares", "--net=linear", "--repetitions=1", "--epochs=2"]
    found = lines(capsys, "--tasks=ranking", *options)
    assert {line["loss"] for line in found} == {"lambdarank", "least-squares"}
    assert {line["metric"] for line in found} == {f"NDCG@{k} %" for k in (1, 3, 5, 10)}
    assert all(30 < line["mean"] < 90 for line in found)
    assert all(line["low"] <= line["difference"] <= line["high"] for line in found), "resampled queries"


@here
def test_the_right_digits_give_the_best_matchings():
    found = problem("matching", train=50)
    every = digits.perfect_matchings(4)
    assert every.shape == (36, 24)
    assert (every.sum(1) == 8).all()
    covered = torch.zeros(36, 16, dtype=torch.int64)
    for end in (0, 1):
        covered.index_add_(1, digits.EDGES[:, end], every)
    assert (covered == 1).all(), "each cell once"
    (price,) = found.test.given
    assert found.metrics["optimal"].measure(-price, found.test, found.structure) == 1
    assert found.metrics["optimal"].measure(torch.randn_like(price), found.test, found.structure) < 0.3
    # 3 left of 7 is 37, in tens.
    row = torch.zeros(16)
    row[0], row[1] = 3, 7
    assert digits.edge_costs(row)[0].item() == pytest.approx(3.7)
    assert found.net()(found.test.features[:5]).shape == (5, 24)
    unseen = problem("matching", train=50, unseen=True)
    assert found.test.features.max() < 1000 <= unseen.test.features.min()


def test_a_small_run_compares_pairs_and_goes_on_where_it_was(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--tasks=path,knapsack", "--losses=least-squares,direct-tuned", "--train=64", "--epochs=2"]
    found = lines(capsys, *options, "--repetitions=2", "--output=out")
    assert [(line["place"].split(",")[0], line["n"]) for line in found] == [("path", 2)] * 2 + [("knapsack", 2)] * 2
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert first["rival"] == second["loss"]
        assert first["difference"] == pytest.approx(-second["difference"])
    assert all((tmp_path / f"out/{name}.svg").is_file() for name in ("regret", "course", "settings"))
    with (tmp_path / "out/rows.csv").open() as file:
        saved = [
            float(row["regret"])
            for row in csv.DictReader(file)
            if row["task"] == "path" and row["loss"] == "direct-tuned"
        ]
    (line,) = [line for line in found if line["loss"] == "direct-tuned" and line["place"].startswith("path")]
    assert line["mean"] == pytest.approx(100 * sum(saved) / 2)
    monkeypatch.setattr("directloss.lab.fit.fit", None)  # nothing is trained again
    assert lines(capsys, *options, "--repetitions=2") == found


def test_every_option_changes_the_outcome(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["--tasks=path", "--losses=direct-tuned", "--repetitions=1", "--train=64", "--epochs=2"]
    changes = ["--degree=6", "--size=4", "--noise=0", "--train=96", "--data-seed=-1", "--epochs=3", "--batch=16"]
    changes += [
        "--epochs-times=2",
        "--rate-times=3",
        "--scores-times=10",
        "--optimizer=sgd",
        "--warm-start=1",
        "--seed=9",
    ]
    means = {"": lines(capsys, *base)[0]["mean"]}
    for change in changes:
        kept = [option for option in base if option.split("=")[0] != change.split("=")[0]]
        means[change] = lines(capsys, *kept, change)[0]["mean"]
    assert len(set(means.values())) == len(means), means


def test_options_of_other_tasks_and_unknown_losses_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["--tasks=energy", "--degree=2"], "--degree is not for the task energy, but for path, knapsack"),
        (["--tasks=path", "--unseen"], "--unseen is not for the task path, but for matching"),
        (["--tasks=paths"], "--tasks has 'paths'; choose from path, knapsack, energy, ranking, matching"),
        (["--losses=spo"], "--losses has 'spo'; choose from direct, direct-tuned"),
    ):
        with pytest.raises(SystemExit):
            main(["decide", *arguments])
        assert said in capsys.readouterr().err
    monkeypatch.setitem(METHODS, "spo+", Method("no_such_rule"))
    with pytest.raises(UserError, match=r"whose dl\.no_such_rule this version does not have"):
        decisions.check([decisions.published("path", "spo+")], None)


def test_ones_own_loss_is_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = "def plain(scores, cost, structure, generator=None):\n    return (scores + cost).square().mean()\n"
    (tmp_path / "own_loss.py").write_text(text)
    options = ["--repetitions=1", "--train=64", "--epochs=2", "--losses=own_loss:plain,least-squares"]
    one, two = lines(capsys, "--tasks=path", *options)
    assert one["mean"] == pytest.approx(two["mean"])
