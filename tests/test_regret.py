"""Regret against enumeration: every structure is tried."""

import pytest
import torch
from tables import STRUCTURES

import directloss as dl


@pytest.mark.parametrize("row", STRUCTURES, ids=lambda row: row.name)
def test_regret_is_what_enumeration_says(row):
    scores, cost = row.scores(7, seed=1), row.scores(7, seed=2)
    if row.structure.nonpositive:
        scores, cost = -scores.abs(), cost.abs()
    every = row.every.flatten(1)
    values = cost.flatten(1) @ every.T
    chosen = (scores.flatten(1) @ every.T).argmax(-1, keepdim=True)
    taken, best = values.take_along_dim(chosen, -1).squeeze(-1), values.amin(-1)
    expected = taken - best
    regret = dl.regret(scores, cost, row.structure, reduction="none")
    torch.testing.assert_close(regret, expected)
    torch.testing.assert_close(dl.regret(scores, cost, row.structure), expected.mean())
    torch.testing.assert_close(dl.regret(scores, cost, row.structure, reduction="sum"), expected.sum())
    whole = dl.regret(scores, cost, row.structure, normalize=True)
    torch.testing.assert_close(whole, expected.sum() / best.abs().sum())
    each = dl.regret(scores, cost, row.structure, normalize=True, reduction="none")
    torch.testing.assert_close(each, expected / best.abs())


def test_factors_choose_but_do_not_cost():
    """A chain's transitions change the decision, not what the best one costs."""
    generator = torch.Generator().manual_seed(0)
    unary, cost = (torch.randn(6, 4, 3, generator=generator) for _ in range(2))
    transitions = torch.randn(3, 3, generator=generator)
    y = dl.Chain().solve((unary, transitions))
    expected = (cost * y).sum((-1, -2)) - cost.amin(-1).sum(-1)
    torch.testing.assert_close(dl.regret((unary, transitions), cost, dl.Chain(), reduction="none"), expected)


def test_it_has_no_gradient_and_a_shared_cost_broadcasts():
    scores = torch.randn(5, 4, requires_grad=True)
    cost = torch.tensor([1.0, 2.0, 3.0, 4.0])
    regret = dl.regret(scores, cost, dl.Choice(), reduction="none")
    assert not regret.requires_grad
    torch.testing.assert_close(regret, scores.argmax(-1).float())


def test_a_normalised_sum_is_refused():
    with pytest.raises(ValueError, match="a normalised regret has no sum"):
        dl.regret(torch.zeros(2, 3), torch.ones(3), dl.Choice(), normalize=True, reduction="sum")
