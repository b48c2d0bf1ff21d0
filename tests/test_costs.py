"""``const + <cost, y>`` is the loss that each function names, on every structure."""

from itertools import permutations

import pytest
import torch
from tables import STRUCTURES, named, zero_one_structures

import directloss as dl

MATCHING = next(row for row in STRUCTURES if row.name == "matching-4x4").every
VALUES = torch.tensor([0.7, 0.1, 0.9, 0.4], dtype=torch.float64)
ORDER = VALUES.argsort()
TARGET = torch.zeros(4, 4, dtype=torch.float64).index_put_((ORDER, torch.arange(4)), torch.tensor(1.0).double())


def losses(cost, every=MATCHING, constant=0.0):
    """``const + <cost, y>`` of every structure."""
    return constant + (cost * every).flatten(1).sum(1)


@zero_one_structures
@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.int64, torch.uint8], ids=str)
def test_hamming_counts_the_entries_that_differ(row, dtype):
    every = row.every
    for target in every:
        cost = dl.costs.hamming(target.to(dtype))
        assert torch.equal(losses(cost, every, target.sum()), (every != target).flatten(1).sum(1).double())


def test_squared_error_is_the_distance_from_the_targets():
    targets = VALUES.sort().values
    cost = dl.costs.squared_error(VALUES, targets)
    for y, loss in zip(MATCHING, losses(cost), strict=True):
        torch.testing.assert_close(loss, ((y.mT @ VALUES - targets) ** 2).sum())
    assert losses(cost).min() == 0
    assert torch.equal(MATCHING[losses(cost).argmin()], TARGET)


def test_squared_error_takes_batches_and_fewer_targets():
    values, targets = torch.rand(2, 5, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64)
    cost = dl.costs.squared_error(values, targets)
    assert cost.shape == (2, 5, 3)
    assert cost[1, 4, 2] == (values[1, 4] - targets[1, 2]) ** 2


@pytest.mark.parametrize(("by", "axis"), [("row", 1), ("column", 0)])
def test_weighted_hamming_weighs_the_entries_that_differ_with_squared_values(by, axis):
    weights = (VALUES**2).unsqueeze(axis).expand(4, 4)
    for target in MATCHING:
        cost = dl.costs.weighted_hamming(VALUES, target, by=by)
        expected = (weights * (target != MATCHING)).flatten(1).sum(1)
        torch.testing.assert_close(losses(cost, constant=(weights * target).sum()), expected)


def test_weighted_hamming_defaults_to_the_papers_form():
    by_row = dl.costs.weighted_hamming(VALUES, TARGET, by="row")
    assert torch.equal(dl.costs.weighted_hamming(VALUES, TARGET), by_row)
    assert not torch.equal(dl.costs.weighted_hamming(VALUES, TARGET, by="column"), by_row)


@pytest.mark.parametrize("by", ["row", "column"])
def test_weighted_hamming_is_not_the_quadratic_loss_but_has_its_minimiser(by):
    quadratic = losses(dl.costs.squared_error(VALUES, VALUES.sort().values))
    weighted = losses(dl.costs.weighted_hamming(VALUES, TARGET, by=by))
    assert quadratic.argmin() == weighted.argmin()
    assert torch.equal(MATCHING[weighted.argmin()], TARGET)
    # Not even up to a constant: it does not rank the structures alike.
    assert (quadratic - weighted).std() > 0.1
    assert not torch.equal(quadratic.argsort(), weighted.argsort())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("power", [1.0, 2.0, 0.5])
def test_rank_distance_sums_how_far_each_value_is_from_its_place(descending, power):
    cost = dl.costs.rank_distance(VALUES, descending=descending, power=power)
    ranks = [sorted(VALUES.tolist(), reverse=descending).index(value) for value in VALUES.tolist()]
    for places in permutations(range(4)):
        y = torch.nn.functional.one_hot(torch.tensor(places), 4)
        expected = sum(abs(rank - place) ** power for rank, place in zip(ranks, places, strict=True))
        assert losses(cost, y[None]).item() == pytest.approx(expected)


def test_rank_distance_gives_equal_values_different_places():
    cost = dl.costs.rank_distance(torch.tensor([[0.5, 0.5, 0.1]]))
    assert cost.shape == (1, 3, 3)
    assert losses(cost, dl.Matching().enumerate(torch.zeros(3, 3))).min() == 0
    assert (cost.argmin(-1) == torch.tensor([[1, 2, 0]])).all()


@named("subset")
def test_wrong_label_is_the_share_of_selected_entries_with_another_label(row):
    labels, query_labels = torch.tensor([0, 1, 0, 2, 1]), torch.tensor([0, 1, 3])
    cost = dl.costs.wrong_label(labels, query_labels, k=2)
    assert cost.shape == (3, 5)
    for one, query in zip(cost, query_labels, strict=True):
        expected = [sum(labels[y.bool()] != query).item() / 2 for y in row.every]
        assert losses(one, row.every).tolist() == expected
    assert torch.equal(dl.costs.wrong_label(labels.expand(3, 5), query_labels, k=2), cost)


@named("subset")
def test_label_distance_is_minus_the_distances_of_selected_right_labels(row, generator):
    labels, query_labels = torch.tensor([0, 1, 0, 2, 1]), torch.tensor([0, 1, 3])
    distances = torch.rand(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    cost = dl.costs.label_distance(distances, labels, query_labels)
    assert not cost.requires_grad
    for one, distance, query in zip(cost, distances.detach(), query_labels, strict=True):
        expected = torch.stack([-(distance * y)[labels == query].sum() for y in row.every])
        torch.testing.assert_close(losses(one, row.every), expected)
    # Under -1 < epsilon < 0 right labels look nearer: the augmented score is -(1 - |epsilon|) d.
    torch.testing.assert_close((-distances - 0.1 * cost)[0, 0], -(1 - 0.1) * distances[0, 0])


def test_options_are_checked():
    with pytest.raises(ValueError, match="by is 'diagonal', expected 'row' or 'column'"):
        dl.costs.weighted_hamming(VALUES, TARGET, by="diagonal")
    with pytest.raises(ValueError, match="k is 0, expected at least 1"):
        dl.costs.wrong_label(torch.zeros(3), torch.tensor(0), k=0)
