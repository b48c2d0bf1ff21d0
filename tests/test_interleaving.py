"""Interleavings, their average precision and its loss-augmented maximiser, against all rankings."""

import os
from itertools import permutations

import numpy as np
import pytest
import torch

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "3000"))


def by_hand(order, positive):
    """y and the average precision of a ranking, from their definitions."""
    rank = {item: place for place, item in enumerate(order)}
    relevant = [i for i in range(len(positive)) if positive[i]]
    irrelevant = [j for j in range(len(positive)) if not positive[j]]
    y = np.zeros(len(positive))
    for i in relevant:
        for j in irrelevant:
            sign = 1 if rank[i] < rank[j] else -1
            y[i] += sign / (len(relevant) * len(irrelevant))
            y[j] -= sign / (len(relevant) * len(irrelevant))
    places = sorted(rank[i] + 1 for i in relevant)
    precision = sum((k + 1) / place for k, place in enumerate(places)) / max(1, len(relevant))
    return y, 1 - precision if relevant else 0.0


PATTERNS = [[1], [0], [1, 0], [0, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1, 1], [1, 1, 1], [0, 0], [1, 0, 0, 0, 1, 0]]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_enumeration_gives_every_ranking_once_with_its_average_precision(pattern):
    positive = torch.tensor(pattern).bool()
    structure = dl.Interleaving(positive)
    every = structure.enumerate(torch.zeros(len(pattern), dtype=torch.float64))
    assert len(every) == structure.count(torch.zeros(len(pattern)))
    losses = structure.average_precision_loss(every)
    known = {tuple(y.mul(1e6).round().long().tolist()): loss.item() for y, loss in zip(every, losses, strict=True)}
    assert len(known) == len(every)
    rankings = {}
    for order in permutations(range(len(pattern))):
        y, loss = by_hand(order, pattern)
        rankings[tuple(np.round(y * 1e6).astype(int).tolist())] = loss
    assert known.keys() == rankings.keys()
    for y, loss in known.items():
        assert loss == pytest.approx(rankings[y], abs=1e-12)


def random_scores(rng, kind, shape):
    return {
        "normal": lambda: rng.standard_normal(shape),
        "ties": lambda: rng.integers(-1, 2, shape).astype(float),
        "constant": lambda: np.full(shape, 0.1),
        "huge": lambda: 1e20 * rng.standard_normal(shape),
        "tiny": lambda: 1e-20 * rng.standard_normal(shape),
    }[kind]()


@pytest.mark.parametrize("kind", ["normal", "ties", "constant", "huge", "tiny"])
def test_the_maximisers_are_the_best_of_all_interleavings_for_both_signs(kind):
    for seed in range(-(-INSTANCES // 500)):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 8))
        positive = torch.from_numpy(rng.random(n) < rng.random())
        structure = dl.Interleaving(positive)
        every = structure.enumerate(torch.zeros(n, dtype=torch.float64))
        losses = structure.average_precision_loss(every)
        theta = torch.from_numpy(random_scores(rng, kind, (100, n)))
        plain = theta @ every.mT
        y = structure.solve(theta)
        size = theta.abs().max().item() * 1e-14
        torch.testing.assert_close((theta * y).sum(-1), plain.amax(-1), rtol=0, atol=size)
        for epsilon in (0.3, -0.3, 5.0, -5.0, torch.from_numpy(rng.standard_normal(100))):
            y = structure.average_precision_augmented(theta, epsilon)
            reached = (theta * y).sum(-1) + epsilon * structure.average_precision_loss(y)
            best = (plain + torch.as_tensor(epsilon, dtype=torch.float64).reshape(-1, 1) * losses).amax(-1)
            bound = size + 1e-14 * (abs(epsilon) if isinstance(epsilon, float) else epsilon.abs().max().item())
            torch.testing.assert_close(reached, best, rtol=0, atol=bound)
            same = (y.unsqueeze(-2) == every).all(-1)
            assert same.any(-1).all()


def test_relevance_of_each_instance_is_its_own(generator):
    positive = torch.tensor(
        [[True, False, False, True, False], [False, False, False, True, False], [True] * 5, [False] * 5]
    )
    theta = torch.randn(3, 4, 5, generator=generator)
    structure = dl.Interleaving(positive)
    y, moved = structure.solve(theta), structure.average_precision_augmented(theta, -2.0)
    loss = structure.average_precision_loss(y)
    for instance in range(4):
        alone = dl.Interleaving(positive[instance])
        assert torch.equal(y[:, instance], alone.solve(theta[:, instance]))
        assert torch.equal(moved[:, instance], alone.average_precision_augmented(theta[:, instance], -2.0))
        assert torch.equal(loss[:, instance], alone.average_precision_loss(y[:, instance]))
    assert not y[:, 2:].any()
    assert not loss[:, 2:].any()


@pytest.mark.parametrize("epsilon", [1.5, -1.5])
@pytest.mark.parametrize("sides", ["one", "both"])
def test_the_direct_loss_of_average_precision_is_its_definition(epsilon, sides, generator):
    positive = torch.rand(6, 8, generator=generator) < 0.4
    structure = dl.Interleaving(positive)
    scores = torch.randn(6, 8, generator=generator, dtype=torch.float64).requires_grad_()
    gamma = torch.randn(5, 6, 8, generator=generator, dtype=torch.float64)
    loss = dl.direct_loss(
        scores, structure.average_precision_loss, structure, epsilon=epsilon, sides=sides, scale=0.5, noise=gamma,
        augmented=structure.average_precision_augmented, reduction="sum",
    )  # fmt: skip
    loss.backward()
    theta = scores.detach() + 0.5 * gamma
    y, ahead, behind = (structure.average_precision_augmented(theta, step) for step in (0.0, epsilon, -epsilon))
    torch.testing.assert_close(loss.detach(), structure.average_precision_loss(y).mean(0).sum())
    difference = (ahead - y) / epsilon if sides == "one" else (ahead - behind) / (2 * epsilon)
    assert scores.grad.any()
    torch.testing.assert_close(scores.grad, difference.mean(0))


def test_training_puts_relevant_items_first(generator):
    positive = torch.rand(4, 12, generator=generator) < 0.3
    structure = dl.Interleaving(positive)
    scores = torch.randn(4, 12, generator=generator, requires_grad=True)
    optimiser = torch.optim.Adam([scores], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        dl.direct_loss(
            scores,
            structure.average_precision_loss,
            structure,
            epsilon=-10.0,
            augmented=structure.average_precision_augmented,
        ).backward()
        optimiser.step()
    assert structure.average_precision_loss(structure.solve(scores)).max() < 0.05


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_where_no_item_moves_nothing_is_left_in_any_precision(dtype, generator):
    structure = dl.Interleaving(torch.rand(20, 13, generator=generator) < 0.4)
    scores = torch.randn(20, 13, generator=generator).to(dtype)
    moved = structure.average_precision_augmented(scores, 1e-12)
    assert moved.dtype == dtype
    same = structure.average_precision_loss(moved) == structure.average_precision_loss(structure.solve(scores))
    assert torch.equal(structure.solve(scores)[same], moved[same])
    assert same.float().mean() > 0.9


def test_threads_do_not_matter(generator):
    structure, theta = (
        dl.Interleaving(torch.rand(60, generator=generator) < 0.3),
        torch.randn(200, 60, generator=generator),
    )
    found = []
    for threads in (1, 2):
        dl.set_num_threads(threads)
        found.append(structure.average_precision_augmented(theta, 1.0))
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("positive", "scores", "message"),
    [
        (
            torch.tensor([1, 0]),
            torch.zeros(2),
            "positive is torch.int64, expected a boolean tensor, True where an item",
        ),
        (torch.tensor(True), torch.zeros(1), r"positive has shape \(\), expected at least 1 axes"),
        (torch.ones(3) > 0, torch.zeros(2), r"positive is a mask of \(3,\) entries, but the scores have \(2,\)"),
        (torch.ones(4, 2) > 0, torch.zeros(3, 2), r"positive has batch axes \(4,\), which do not broadcast"),
        (torch.ones(2) > 0, torch.tensor([0.0, torch.nan]), "NaN or infinite"),
    ],
)
def test_bad_input_is_refused_at_the_boundary(positive, scores, message):
    for solve in (
        lambda: dl.Interleaving(positive).solve(scores),
        lambda: dl.Interleaving(positive).average_precision_augmented(scores, 1.0),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            solve()


@pytest.mark.parametrize("batch", [(7,), (2, 3), (3, 1)], ids=str)
def test_pieces_of_a_batch_are_solved_with_their_own_relevance_and_epsilon(batch, monkeypatch, generator):
    scores, epsilon = torch.randn(*batch, 5, generator=generator), 5 * torch.randn(batch, generator=generator)
    structure = dl.Interleaving((torch.arange(5) + torch.arange(batch[-1]).unsqueeze(-1)) % 2 == 0)
    whole = structure.solve(scores), structure.average_precision_augmented(scores, epsilon)
    monkeypatch.setattr("directloss.structures.arrays._PIECE", 10)
    assert torch.equal(structure.solve(scores), whole[0])
    assert torch.equal(structure.average_precision_augmented(scores, epsilon), whole[1])
    assert not torch.equal(*whole)
