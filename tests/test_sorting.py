"""The sorting experiment: it learns, it repeats to the bit, and its numbers mean what they say."""

from dataclasses import fields, replace
from itertools import permutations

import pytest
import torch
from scipy.stats import binomtest, kendalltau

from directloss.experiments import dynamics, sorting
from directloss.experiments.sorting import EXPERIMENT, METHODS, Config
from directloss.experiments.sorting_stack import Stack, train
from directloss.lab import figures
from directloss.lab.run import train_missing
from directloss.lab.store import Row, Store

every_method = pytest.mark.parametrize("method", METHODS)
KEYS = {"perfect", "wrong", "kendall_tau", "epochs", "seconds", "training_error", "sigma", "final_epsilon"}


def small(method, size, **options):
    """The paper's recipe with few samples."""
    return replace(sorting.paper(method, size), samples=2, **options)


def results(config, repetitions):
    """What a training ends with, without its time."""
    return {number: {**result, "seconds": None} for number, result in train(config, repetitions)}


@every_method
@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_method_trains_to_a_sane_result(method, size):
    config = small(method, size, max_epochs=5)
    found = dict(train(config, [7, 2, 3]))
    assert sorted(found) == [2, 3, 7]
    for result in found.values():
        assert result.keys() == KEYS
        assert result["wrong"] * size in range(size + 1)
        assert result["perfect"] == (result["wrong"] == 0) == (result["kendall_tau"] == 1)
        assert -1 <= result["kendall_tau"] <= 1
        assert result["epochs"] == 5
        assert result["seconds"] > 0
        assert 0 <= result["training_error"] < size
        learned = method in ("dsl", "annealed", "handsfree")
        assert 0 < result["sigma"] < 50 if learned else result["sigma"] == float(method != "direct0")
        if config.finds:
            assert 0 < result["final_epsilon"] < 100
        else:
            assert 12 <= result["final_epsilon"] <= 12 * 1.1**5 + 1e-4


@pytest.mark.parametrize(
    "config",
    [sorting.best("direct1", 5, 0), sorting.best("dsl", 5, 0), sorting.paper("dsl", 5, 0)],
    ids=["best-direct1", "best-dsl", "paper-dsl"],
)
def test_recipes_learn_to_sort(config):
    assert all(result["perfect"] for result in results(config, range(5)).values())


def test_the_paper_recipe_stops_early_and_the_best_one_does_not():
    assert results(sorting.paper("direct0", 3, 0), [0])[0]["epochs"] < sorting.paper("direct0", 3, 0).max_epochs
    assert results(sorting.best("direct0", 3, 0), [0])[0]["epochs"] == sorting.best("direct0", 3, 0).max_epochs


@every_method
@pytest.mark.parametrize("options", [{"max_epochs": 8, "patience": 0}, {"max_epochs": 60, "patience": 2}], ids=str)
def test_a_repetition_has_the_same_bits_whoever_its_companions_are(method, options):
    config = small(method, 5, scale_learning_rate=1e-3, **options)
    together = results(config, range(6))
    assert results(config, range(6)) == together
    for repetitions in ([4], [1, 4], [4, 1], [5, 0, 3]):
        found = results(config, repetitions)
        assert found == {number: together[number] for number in repetitions}
    if options["patience"]:  # some leave the stack before the others
        assert len({result["epochs"] for result in together.values()}) > 1


DSL = Config("dsl", 4, max_epochs=8, samples=2)
SINKHORN = replace(DSL, method="gumbel-sinkhorn")
ANNEALED = replace(sorting.one_side("annealed", 12), max_epochs=12)
CHANGES = {
    "method": (DSL, "direct1"),
    "size": (DSL, 5),
    "seed": (DSL, 1),
    "sequences": (DSL, 9),
    "fresh": (DSL, True),
    "max_epochs": (DSL, 7),
    "patience": (replace(DSL, max_epochs=30), 1),
    "learning_rate": (DSL, 0.05),
    "decay": (DSL, True),
    "cost": (DSL, "hamming"),
    "sides": (DSL, "both"),
    "epsilon": (DSL, 12.0),
    "growth": (replace(DSL, epsilon=-1e-6, max_epochs=100), 2.0),  # far too small to make a difference
    "limit": (replace(DSL, epsilon=-1e-6, max_epochs=100, growth=2.0), 2e-6),
    "samples": (DSL, 3),
    "noise_variance": (DSL, 1.0),
    "scale_learning_rate": (DSL, 1.0),
    "finds": (DSL, True),
    "scale_start": (ANNEALED, 3.0),
    "scale_end": (ANNEALED, 0.01),
    "temperature": (SINKHORN, 2.0),
    "iterations": (SINKHORN, 1),
}


def errors(config):
    """The training error of every epoch: what any choice but a label must change."""
    steps = []
    list(train(config, [0], on_step=steps.append))
    return [step.error[0].item() for step in steps]


@pytest.mark.parametrize("field", CHANGES)
def test_every_choice_changes_the_training(field):
    config, value = CHANGES[field]
    assert errors(config) != errors(replace(config, **{field: value}))


def test_every_cost_trains_in_its_own_way():
    # With a small epsilon: a large one finds the same minimiser with each of them.
    traces = {tuple(errors(replace(DSL, cost=cost, epsilon=-0.5))) for cost in sorting.COSTS}
    assert len(traces) == len(sorting.COSTS)


def test_a_scale_that_starts_too_large_anneals_itself():
    config = replace(sorting.one_side("dsl", 10), max_epochs=60)
    steps = []
    tests = [result["wrong"] for _, result in train(config, range(4), on_step=steps.append)]
    scales = torch.stack([step.scale for step in steps])
    assert (scales[-1] < 0.5 * scales[0]).all(), "it is learned"
    assert sum(tests) / 4 < 0.1, "and all is sorted, where half would be misplaced by chance"


def test_the_table_of_choices_is_complete():
    # A recipe is only the name under which a configuration is reported.
    assert {field.name for field in fields(Config)} - set(CHANGES) == {"recipe"}
    assert errors(replace(DSL, recipe="another")) == errors(DSL)


def test_evaluation_counts_misplaced_numbers_and_pairs():
    stack = Stack(Config("dsl", 4), range(30))
    scores, numbers = stack.net(stack.test).squeeze(1), stack.test.squeeze(1).tolist()
    found = stack.evaluate()
    for score, x, result in zip(scores, numbers, found, strict=True):
        places = max(permutations(range(4)), key=lambda places: sum(score[i, j].item() for i, j in enumerate(places)))
        right = [sorted(x, reverse=True).index(number) for number in x]
        wrong = sum(place != wanted for place, wanted in zip(places, right, strict=True))
        assert (result["wrong"], result["perfect"]) == (wrong / 4, wrong == 0)
        assert result["kendall_tau"] == pytest.approx(kendalltau(places, right).statistic, abs=1e-6)
    assert len({result["wrong"] for result in found}) > 2


@pytest.mark.parametrize("gap", [0.0, 1e-7])
def test_the_test_tells_close_numbers_apart_and_equal_ones_may_stand_in_either_order(gap):
    stack = Stack(Config("direct0", 5), [0, 1])
    for affine, weight in ((stack.net.embed, torch.ones(32)), (stack.net.score, -torch.arange(5.0).expand(32, 5))):
        affine.weight.data[:] = weight
        affine.bias.data[:] = 100 if affine is stack.net.embed else 0  # x + 100 is x to some digits only
    stack.test[:] = torch.tensor([0.2, 0.1 + gap, 0.4, 0.1, 0.3])
    assert [result["perfect"] for result in stack.evaluate()] == [True, True]
    assert [result["kendall_tau"] for result in stack.evaluate()] == [1, 1]


def test_what_is_missing_is_trained_and_nothing_else(tmp_path):
    configs = [Config("dsl", size, max_epochs=2, samples=1) for size in (3, 4)]
    store = Store(tmp_path / "store.sqlite")
    keys = [EXPERIMENT.key(config) for config in configs]
    store.add(keys[0], [(1, {"wrong": "kept"})])
    for repetitions in (3, 3, 2):
        train_missing(EXPERIMENT, configs, repetitions, store)
    assert [row["wrong"] for row in store.rows_of(keys[0]) if row.repetition == 1] == ["kept"]
    assert [store.finished(key) for key in keys] == [{0, 1, 2}] * 2


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 200), (200, 200), (1, 3), (197, 200), (50, 200)])
def test_wilson_is_scipys_interval(successes, trials):
    exact = binomtest(successes, trials).proportion_ci(method="wilson")
    assert sorting.wilson(successes, trials) == pytest.approx(tuple(exact), abs=1e-7)


def row(config, number, wrong, tau, epochs, seconds):
    numbers = {"perfect": wrong == 0, "wrong": wrong, "kendall_tau": tau, "epochs": epochs, "seconds": seconds}
    key = EXPERIMENT.key(config)
    return Row("sorting", str(key), number, dict(key.config), numbers, "abc", "2026-01-01")


def test_the_table_has_one_line_for_each_configuration():
    dsl = sorting.paper("dsl", 10)
    rows = [
        row(dsl, 0, 0.5, 0.4, 20, 4.0),
        row(dsl, 1, 0.0, 1.0, 40, 2.0),
        row(replace(dsl, epsilon=-3.0), 0, 0.0, 1.0, 10, 5.0),
        row(sorting.paper("gumbel-sinkhorn", 5), 0, 0.0, 1.0, 10, 1.0),
        row(sorting.best("dsl", 10), 0, 0.2, 0.5, 10, 5.0),
    ]
    table = EXPERIMENT.table(rows, "title")
    first, other, *_ = table.lines
    assert len(table.lines) == 4
    assert {name: value for name, value in first.items() if not name.startswith("_")} == {
        "method": "dsl",
        "size": 10,
        "recipe": "paper",
        "repetitions": 2,
        "perfect": 50.0,
        "wrong_mean": 25.0,
        "wrong_std": pytest.approx(50 / 2**0.5),
        "kendall_tau": 0.7,
        "epochs_mean": 30.0,
        "seconds_per_epoch": 0.1,
    }
    assert (first["_options"], other["_options"]) == ("", "epsilon -3")
    assert other["wrong_std"] == 0


def test_traces_of_both_signs_start_alike_and_look_to_either_side():
    towards, away = (
        dynamics.trace(Config("dsl", 5, epsilon=epsilon, cost="hamming", max_epochs=12, patience=0), 3)
        for epsilon in (-12.0, 12.0)
    )
    assert [point["epoch"] for point in towards] == list(range(12))
    assert towards[0]["loss"] == away[0]["loss"]
    assert towards[0]["y"] == away[0]["y"]
    # With the Hamming cost: a structure that costs less has more entries in their place.
    assert all(point["y_eps"] >= point["y"] for point in towards)
    assert all(point["y_eps"] <= point["y"] for point in away)
    for trace in (towards, away):
        assert trace[-1]["loss"] < trace[0]["loss"]
        assert trace[-1]["y"] > trace[0]["y"]


def test_the_figure_is_drawn_as_svg_and_png(tmp_path):
    curve = [{"epoch": epoch, "loss": 1 / (1 + epoch), "y": 50.0, "y_eps": 60.0} for epoch in range(3)]
    rows = [{"method": "dsl", "size": 5, "epsilon": epsilon, "curve": curve} for epsilon in (-12.0, 12.0)]
    figures.save(dynamics.draw(rows), tmp_path / "figure")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG\r\n")
    svg = (tmp_path / "figure.svg").read_text()
    assert svg.startswith("<?xml")
    assert svg.rstrip().endswith("</svg>")
