"""dl.compare: the right loss wins where it must, nothing is trained twice, and what cannot be told is not told."""

import csv
import functools
import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import directloss as dl
from directloss.lab import pairs, standings
from directloss.lab.fingerprint import fingerprint
from directloss.lab.fit import Plan, fit
from directloss.lab.methods import METHODS, Method
from directloss.lab.problem import Instances, Metric, Problem

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(120, 3, generator=GENERATOR)
COST = (X @ torch.randn(3, 4, generator=GENERATOR)).sigmoid() + 0.1
LINEAR = functools.partial(nn.Linear, 3, 4)
calls = []


def direct(scores, cost, structure, generator=None):
    calls.append(len(scores))
    return dl.direct_loss(scores, cost, structure, epsilon=-1.0, scale=0.5, generator=generator)


def upwards(scores, cost, structure, generator=None):
    """Learns the worst decisions."""
    return direct(scores, -cost, structure, generator)


@pytest.fixture(autouse=True)
def _count():
    calls.clear()


def small(losses, **options):
    options = {"seeds": range(3), "epochs": 3, "batch": 20} | options
    return dl.compare(LINEAR, (X, COST), dl.Choice(), losses, **options)


# intervals


def test_the_paired_interval_is_scipys():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=7), rng.normal(size=7)
    found, expected = pairs.paired(ours, theirs), stats.ttest_rel(ours, theirs).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert [pairs.student(n) for n in (1, 2, 3, 8, 50)] == pytest.approx(
        [stats.t.ppf(0.975, n) for n in (1, 2, 3, 8, 50)]
    )


def test_one_pair_tells_nothing():
    assert not pairs.paired([1.0], [2.0]).told
    assert pairs.paired([1.0], [2.0]).high == math.inf


def test_the_bootstrap_covers_the_mean_and_does_not_change():
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(size=200), rng.normal(0.5, 1, size=200)
    found = pairs.resampled(ours, theirs)
    assert found == pairs.resampled(ours, theirs)
    half = 1.96 * (ours - theirs).std() / math.sqrt(200)
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half), abs=0.2 * half)


# comparing


def test_the_better_loss_wins_and_the_table_says_so():
    found = small({"worst": upwards, "direct": direct}, seeds=range(4), epochs=12)
    assert found.best == "direct"
    assert [line["loss"] for line in found.table.lines] == ["direct", "worst"]
    assert "direct is best" in found.verdict
    best, worst = found.table.lines
    assert best["high"] < 0 < worst["low"]
    assert best["mean"] < worst["mean"]
    assert repr(found).splitlines()[0] == "Losses compared. measure regret %, sees full cost, n 4"
    assert repr(found).splitlines()[2].split()[:2] == ["direct", f"{best['mean']:.2f}"]
    assert repr(found).endswith(found.verdict)
    lines = list(csv.DictReader(found.to_csv().splitlines()))
    regrets = [float(line["regret"]) for line in lines if line["loss"] == "worst"]
    assert worst["mean"] == pytest.approx(100 * sum(regrets) / 4)
    assert [label.get_text() for label in found.plot().axes[0].get_yticklabels()] == ["direct", "worst"]


def test_equal_losses_cannot_be_told_apart():
    found = small({"one": direct, "same": direct})
    assert found.best is None
    assert "cannot be told" in found.verdict
    assert found.table.lines[0]["mean"] == found.table.lines[1]["mean"], "the same seeds, nets, batches and noise"


def test_a_finished_training_is_not_repeated(tmp_path):
    store = tmp_path / "rows.sqlite"
    first = small({"direct": direct}, store=store)
    trained = len(calls)
    assert trained
    again = small({"direct": direct}, store=store)
    assert len(calls) == trained
    assert [row["metrics"] for row in again.rows] == [row["metrics"] for row in first.rows]
    small({"direct": direct}, store=store, seeds=range(4))
    assert len(calls) == trained * 4 // 3
    small({"direct": direct}, store=store, batch=10)
    assert len(calls) > trained * 4 // 3, "another batch size is another comparison"


def test_processes_give_the_same_rows():
    one, two = (small({"direct": direct, "squares": "least-squares"}, jobs=jobs, seeds=range(2)) for jobs in (1, 2))
    assert [row["metrics"] for row in one.rows] == [row["metrics"] for row in two.rows]


def test_seconds_bound_the_training_instead_of_epochs(monkeypatch):
    """By a clock that takes a second from each look to the next; an epoch looks before each of its four batches."""
    ticks = count()
    monkeypatch.setattr("directloss.lab.fit.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    found = small({"direct": direct}, seconds=12.5, epochs=1)
    assert {(row["epochs"], row["seconds"]) for row in found.rows} == {(3, 14)}


def test_a_criterion_starts_every_training_with_the_same_state():
    criterion = dl.DirectLoss(dl.Choice(), epsilon=-1.0, scale=0.5)
    found = small({"criterion": criterion, "function": direct})
    both = [line["mean"] for line in found.table.lines]
    assert both[0] == both[1]


def test_a_structure_may_depend_on_the_instance_and_a_metric_may_be_ones_own():
    mask = torch.rand(120, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[:, 0] = True
    found = dl.compare(
        LINEAR,
        (X, COST, mask),
        lambda mask: dl.Choice(mask=mask),
        {"direct": direct},
        seeds=[5],
        epochs=2,
        metric=lambda scores, cost, structure: dl.regret(scores, cost, structure),
    )
    (row,) = found.rows
    assert row.repetition == 5
    assert row["metrics"][0]["value"] >= 0


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="there is no 'spo'; choose from least-squares"):
        small(["spo"])
    with pytest.raises(TypeError, match="mine is int, expected a name"):
        small({"mine": 3})
    with pytest.raises(ValueError, match="rate_end is 2, expected a share between 0 and 1"):
        dl.compare(LINEAR, (X, COST), dl.Choice(), ["spo+"], rate_end=2)
    with pytest.raises(ValueError, match="expected shares that leave some for training"):
        small({"direct": direct}, validation=0.8)
    with pytest.raises(ValueError, match="N of each"):
        dl.compare(LINEAR, (X, COST[:5]), dl.Choice(), {"direct": direct})
    with pytest.raises(ValueError, match="different whole numbers"):
        small({"direct": direct}, seeds=[1, 1])


# what it is made of


def plan(**options):
    return Plan(functools.partial(torch.optim.SGD, lr=0.1), **{"epochs": 2, "batch": 20} | options)


PROBLEM = Problem(LINEAR, dl.Choice(), Instances(X[:80], COST[:80]), Instances(X[80:], COST[80:]))


def test_least_squares_finds_what_numpy_finds():
    method = METHODS["least-squares"]
    kept = []

    def net():
        kept.append(nn.Linear(3, 4))
        return kept[-1]

    problem = Problem(net, dl.Choice(), PROBLEM.train, PROBLEM.test)
    fit(problem, method, plan(epochs=800, batch=80), 0)
    design = np.c_[X[:80], np.ones(80)]
    solution = np.linalg.lstsq(design, -COST[:80].numpy(), rcond=None)[0]
    found = torch.cat([kept[0].weight, kept[0].bias[:, None]], 1).detach().numpy().T
    np.testing.assert_allclose(found, solution, atol=1e-3)


def test_entries_without_a_value_do_not_count_in_least_squares():
    values = torch.tensor([[1.0, math.nan]])
    scores = torch.tensor([[3.0, 100.0]], requires_grad=True)
    loss = METHODS["least-squares"].start(dl.Choice())(
        scores, Instances(scores, scores, values=values), dl.Choice(), GENERATOR
    )
    loss.backward()
    assert (loss.item(), scores.grad.tolist()) == (4.0, [[4.0, 0.0]])


def test_the_best_epoch_of_the_validation_is_tested():
    """A metric that falls and rises: the lowest is kept, and of higher-is-better the highest."""
    for higher, expected in ((False, 3), (True, 1)):
        numbers = iter(
            [5.0, 9.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0] if not higher else [1.0, 9.0, 1.0, 8.0, 2.0, 0.0, 1.0, 4.0]
        )
        metric = Metric(lambda *_, numbers=numbers: torch.tensor(next(numbers)), higher=higher)
        problem = Problem(LINEAR, dl.Choice(), PROBLEM.train, PROBLEM.test, PROBLEM.test, {"made up": metric})
        row = fit(problem, Method(direct), plan(epochs=4), 0)
        assert row["epoch"] == expected
        assert row["metrics"][0]["value"] == row["course"][expected - 1]["made up"]


def test_rules_see_the_same_nets_and_batches_and_layers_are_charged_with_the_cost():
    seen = {}

    def spy(name):
        def loss(scores, cost, structure, generator=None):
            seen.setdefault(name, []).append((scores.detach().clone(), cost))
            torch.rand(3, generator=generator)
            return (scores * 0).sum()

        return loss

    for name in "ab":
        fit(PROBLEM, Method(spy(name)), plan(), 7)
    assert all(
        torch.equal(p, q) for one, two in zip(*seen.values(), strict=True) for p, q in zip(one, two, strict=True)
    )

    def layer(scores, structure):
        return scores * 2

    scores = torch.ones(5, 4, requires_grad=True)
    batch = Instances(X[:5], COST[:5])
    loss = Method(layer, "layer").start(dl.Choice())(scores, batch, dl.Choice(), GENERATOR)
    torch.testing.assert_close(loss, 2 * COST[:5].sum() / 5)


def test_targets_are_the_best_decisions():
    found = []

    def loss(scores, target, structure):
        found.append(target)
        return (scores * 0).sum()

    fit(PROBLEM, Method(loss, "target"), plan(epochs=1, batch=80), 0)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found[0], dl.Choice().solve(-COST[:80][order]))


@pytest.mark.parametrize(("end", "rates"), [(1.0, [0.5] * 4), (0.2, [0.5, 0.4, 0.3, 0.2])])
def test_the_learning_rate_falls_linearly_to_the_share_that_is_left(end, rates):
    found = []

    class Watched(torch.optim.SGD):
        def step(self):
            found.append(self.param_groups[0]["lr"])

    def loss(scores, cost, structure):
        return scores.sum()

    fit(PROBLEM, Method(loss), Plan(functools.partial(Watched, lr=0.5), epochs=4, batch=80, rate_end=end), 0)
    torch.testing.assert_close(found, rates)


def test_a_warm_start_is_least_squares_and_initial_scores_are_multiplied():
    first = []

    def loss(scores, cost, structure):
        first.append(scores.detach().clone())
        return (scores * 0).sum()

    fit(PROBLEM, Method(loss), plan(epochs=1, batch=80), 0)
    fit(PROBLEM, Method(loss), plan(epochs=1, batch=80, scores=10.0), 0)
    torch.testing.assert_close(first[1], 10 * first[0])
    fit(PROBLEM, Method(loss), plan(epochs=201, batch=80, warm_start=200), 0)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(201):
        order_later = torch.randperm(80, generator=generator)
    before, after = (
        ((found + COST[:80][which]) ** 2).mean() for found, which in ((first[0], order), (first[2], order_later))
    )
    assert len(first) == 3
    assert after < 0.5 * before


def test_a_fingerprint_is_of_the_content():
    def scaled(factor):
        return lambda x: factor * x

    structure = dl.Knapsack([1, 2], 2)
    assert fingerprint(X, scaled(2)) == fingerprint(X.clone(), scaled(2))
    assert fingerprint(scaled(2)) != fingerprint(scaled(3))
    assert fingerprint(X) != fingerprint(X.double())
    assert fingerprint(structure) == fingerprint(dl.Knapsack([1, 2], 2)) != fingerprint(dl.Knapsack([1, 1], 2))
    assert fingerprint(functools.partial(nn.Linear, 3)) != fingerprint(functools.partial(nn.Linear, 4))
    assert fingerprint(np.arange(3)) == fingerprint(np.arange(3)) != fingerprint(np.arange(4))
    assert fingerprint(dl.DirectLoss(structure, epsilon=1.0)) != fingerprint(dl.DirectLoss(structure, epsilon=2.0))


class Made(dict):
    """A row as the store gives it."""

    def __init__(self, loss, repetition, value, higher=False, each=None):
        metric = {"name": "m", "value": value, "higher": higher, "percent": False, "each": each}
        super().__init__(loss=loss, metrics=[metric], epoch=1, epochs=1, seconds=1.0, course=[])
        self.repetition = repetition


def test_only_shared_seeds_are_paired_and_higher_may_be_better():
    rows = [Made("a", n, 1.0 + n, higher=True) for n in range(4)] + [Made("b", n, n, higher=True) for n in range(1, 6)]
    best, other = standings.lines(rows, lambda row: "", lambda row: "x")
    assert (best["loss"], best["n"], other["loss"], other["n"]) == ("b", 5, "a", 4)
    assert (best["difference"], other["difference"]) == (-1.0, 1.0), "a is ahead by 1 under every shared seed"
    assert other["best"]
    assert not best["best"]


def test_instances_are_resampled_where_a_metric_keeps_them():
    rows = [Made("a", n, 0.5, each=[0.0, 1.0, 0.5]) for n in range(2)] + [
        Made("b", n, 1.5, each=[1.0, 2.0, 1.5]) for n in range(2)
    ]
    best, _ = standings.lines(rows, lambda row: "", lambda row: "x")
    assert (best["difference"], best["low"], best["high"]) == (-1.0, -1.0, -1.0)
