"""The figures of compared losses show what the rows hold, whatever is missing from them."""

from dataclasses import asdict
from itertools import islice, pairwise

import pytest

from directloss.experiments import decisions
from directloss.lab import contest_figures as drawn
from directloss.lab import figures
from directloss.lab.report import build
from directloss.lab.store import Row
from directloss.shown import to_csv

FIGURES = {drawing.name: drawing for drawing in decisions.EXPERIMENT.figures}


def made(values, course=None, higher=False, each=None, task="path"):
    """Rows of losses: for each its values under seeds 0, 1, ..., which its course ends with."""
    rows = []
    for loss, found in values.items():
        config = decisions.published(task, loss)
        for seed, value in enumerate(found):
            metric = {"name": "regret", "value": value, "percent": True, "higher": higher, "each": each}
            epochs = [{"regret": 2 * value}, {"regret": value}] if course is None else course(loss, seed)
            result = {"metrics": [metric], "course": epochs, "epoch": 2, "epochs": 2, "seconds": 1.0}
            rows.append(Row("decisions", loss, seed, asdict(config), result, "", ""))
    return rows


def state(loss, seed):
    """The criterion's, after two epochs of one seed; that of the first epoch lacks a side."""
    return [
        {"regret": 0.2, "scale": 1.0 + seed, "epsilon": -4.0},
        {"regret": 0.1, "scale": 2.0 + 2 * seed, "epsilon": -8.0, "epsilon1": 0.5},
    ]


SPREAD = {"direct": [0.07, 0.072], "spo+": [0.075, 0.0755], "least-squares": [0.08, 0.083], "imle": [0.5, 0.6]}


def texts(axis):
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("name", ["regret", "course", "settings"])
def test_every_figure_is_drawn_of_whatever_rows_there_are(name):
    for rows in (
        [],
        made({"direct": [0.07]}),
        made({"direct": [0.0, 0.0], "spo+": [0.0, 0.0]}),
        made({"direct": [0.1], "spo+": [0.2]}, lambda loss, seed: []),
        made({"direct": [0.1, 0.2], "spo+": [0.1]}, state),
        made({"direct": [0.9, 0.8], "spo+": [0.1, 0.2]}, higher=True, each=[0.1, 0.9]),
        made({"direct": [0.1]}, lambda loss, seed: [{"regret": 0.1, "scale": 0.0, "epsilon": -1.0}]),
    ):
        to_csv(FIGURES[name].points(rows))
        assert figures.to_bytes(FIGURES[name].draw(rows), "png")


def test_an_outlier_is_an_arrow_with_its_number_and_squeezes_nobody():
    axis = FIGURES["regret"].draw(made(SPREAD)).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["direct", "spo+", "least-squares", "imle"]
    assert [label.get_weight() for label in axis.get_yticklabels()] == ["bold", *["normal"] * 3]
    assert texts(axis) == ["7.10", "7.53", "8.15", "55.00"]
    assert [line.get_marker() for line in axis.lines].count(">") == 1
    assert axis.get_xlim()[1] < 30
    beyond = {line["loss"]: line["beyond"] for line in FIGURES["regret"].points(made(SPREAD))}
    assert beyond == {"direct": False, "spo+": False, "least-squares": False, "imle": True}


def test_an_outlier_is_to_the_left_where_higher_is_better():
    values = {loss: [1 - value for value in found] for loss, found in SPREAD.items()}
    axis = FIGURES["regret"].draw(made(values, higher=True)).axes[0]
    assert texts(axis) == ["92.90", "92.47", "91.85", "45.00"]
    assert [line.get_marker() for line in axis.lines].count("<") == 1
    assert axis.get_xlim()[0] > 60


def test_the_interval_is_that_of_the_paired_difference_to_the_best():
    """Differences of 1 and 2 %: Student's 97.5 % quantile of one degree is 12.706, the standard error 0.5."""
    best, other = FIGURES["regret"].points(made({"spo+": [0.11, 0.13], "direct": [0.10, 0.11]}))
    assert (best["loss"], best["low"], best["high"]) == ("direct", None, None)
    assert (other["low"], other["high"]) == pytest.approx((12 - 12.706 / 2, 12 + 12.706 / 2), abs=1e-3)


def test_of_one_seed_no_interval_is_claimed():
    lines = FIGURES["regret"].points(made({"direct": [0.1], "spo+": [0.2]}))
    assert all(line["low"] is line["high"] is None for line in lines)


def test_twelve_courses_differ_and_the_legend_has_the_best_first():
    losses = [*decisions.LOSSES[:10], "own:one", "own:two"]
    values = {loss: [0.3 - 0.01 * number] for number, loss in enumerate(losses)}
    axis = FIGURES["course"].draw(made(values)).axes[0]
    assert len({line.get_color() for line in axis.lines}) == 12
    assert all(one["linestyle"] != two["linestyle"] for one, two in pairwise(islice(figures.line_styles(), 12)))
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == [f"{loss} {found[0] * 100:.2f}" for loss, found in reversed(values.items())]
    widest = max(axis.lines, key=lambda line: line.get_linewidth())
    assert widest.get_label().startswith("direct ")


def test_courses_are_clipped_and_epochs_are_whole():
    axis = FIGURES["course"].draw(made(SPREAD)).axes[0]
    assert axis.get_yscale() == "log"
    assert axis.get_ylim()[1] < 4 * 7.1
    assert all(tick == round(tick) for tick in axis.get_xticks())
    assert {line.get_xdata()[-1] for line in axis.lines} == {2}


def test_settings_are_mean_and_range_over_seeds_without_sign():
    rows = made({"direct": [0.1, 0.1]}, state) + made({"spo+": [0.1, 0.1]})
    lines = FIGURES["settings"].points(rows)
    found = {(line["setting"], line["epoch"]): (line["mean"], line["low"], line["high"]) for line in lines}
    assert found == {
        ("scale", 1): (1.5, 1, 2),
        ("scale", 2): (3, 2, 4),
        ("epsilon", 1): (4, 4, 4),
        ("epsilon", 2): (8, 8, 8),
        ("epsilon1", 2): (0.5, 0.5, 0.5),
    }
    (axis,) = FIGURES["settings"].draw(rows).axes
    assert axis.get_yscale() == "log"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["scale 3", "ε to better 8", "ε to worse 0.5"]


def test_what_has_no_settings_says_so():
    (axis,) = FIGURES["settings"].draw(made(SPREAD)).axes
    assert texts(axis) == ["no loss that finds its own scale and epsilon"]


def test_each_task_has_a_panel_of_its_own_and_fits_a_phone():
    rows = made(SPREAD) + made(SPREAD, task="knapsack")
    for name, drawing in FIGURES.items():
        assert drawing.draw(rows).get_size_inches()[0] <= 4.5
        assert 'class="narrow"' in build.inline(drawing.draw(rows), name)
    titles = [axis.get_title() for axis in FIGURES["regret"].draw(rows).axes]
    assert titles == ["path, 5x5, degree 4", "knapsack, 16 items, degree 6"]
    assert drawn.HANDS_FREE in decisions.LOSSES
