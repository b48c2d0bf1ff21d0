"""Dependency trees against enumeration and networkx."""

import copy
import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from score_kinds import KINDS, WHOLE, batches
from tables import best_objective, direct_loss, index_in, objective
from torch.func import vmap

import directloss as dl

BATCH = 100
STEPS = (0.0, -1.0)


def heads_of(y):
    """Each word's head, (..., n), and a check that it has exactly one."""
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum(-1) == 1).all()
    return y.argmax(-1)


def assert_trees(heads):
    """From every word the heads lead to the root."""
    path = torch.nn.functional.pad(heads, (1, 0))
    reached = path
    for _ in range(heads.shape[-1]):
        reached = path.gather(-1, reached)
    assert not reached.any()


def best_by_networkx(theta):
    graph = nx.DiGraph()
    n = len(theta)
    graph.add_weighted_edges_from(
        (head, word, theta[word - 1, head]) for word in range(1, n + 1) for head in range(n + 1) if head != word
    )
    tree = nx.maximum_spanning_arborescence(graph)
    return sum(theta[word - 1, head] for head, word in tree.edges)


EVERY = {
    (n, single): dl.Arborescence(single_root=single).enumerate(torch.zeros(n, n + 1, dtype=torch.float64))
    for n in range(1, 6)
    for single in (False, True)
}


@pytest.mark.parametrize("single_root", [False, True], ids=["any-roots", "single-root"])
def test_trees_of_up_to_five_words_are_the_best_of_all(single_root):
    for rng, kind in batches(BATCH, seed=int(single_root)):
        n = int(rng.integers(1, 6))
        dtype = torch.float32 if rng.random() < 0.3 else torch.float64
        scores = torch.from_numpy(KINDS[kind](rng, (BATCH, n, n + 1))).to(dtype)
        cost = torch.from_numpy(KINDS["ties"](rng, (int(rng.choice([1, BATCH])), n, n + 1))).to(dtype)
        dl.set_num_threads(int(rng.integers(1, 3)))
        along = dl.Arborescence(single_root=single_root).solve_along(scores, cost, STEPS)
        assert_trees(heads_of(along))
        for step, y in zip(STEPS, along, strict=True):
            theta = scores.double() + step * cost.double()
            index_in(y, EVERY[n, single_root])
            rounding = 0.0 if kind in WHOLE else n * theta.abs().amax((1, 2)) * 1e-15
            short = best_objective(theta, EVERY[n, single_root]) - objective(theta, y, 2)
            assert (short.abs() <= rounding).all()


def test_long_sentences_are_as_good_as_networkxs():
    for rng, kind in batches(1, 60, seed=2):
        n = int(rng.choice([7, 12, 20]))
        theta = KINDS[kind](rng, (n, n + 1))
        theta /= np.abs(theta).max() + (kind in WHOLE)  # networkx adds constants, in which tiny scores would drown
        y = dl.Arborescence().solve(torch.from_numpy(theta))
        assert_trees(heads_of(y))
        assert abs((y.numpy() * theta).sum() - best_by_networkx(theta)) <= n * np.abs(theta).max() * 1e-13


@pytest.mark.parametrize("n", [2, 8, 30, 80])
def test_a_single_root_is_the_best_of_trees_with_each_root(n, generator):
    """Forbid all root edges but one, for every word in turn."""
    scores = torch.randn(6, n, n + 1, generator=generator, dtype=torch.float64)
    each = scores.expand(n, *scores.shape).clone()
    others = ~torch.eye(n, dtype=torch.bool)
    each[..., 0] -= 1e4 * others.unsqueeze(1)
    best = objective(scores.expand_as(each), dl.Arborescence().solve(each), 2).amax(0)
    y = dl.Arborescence(single_root=True).solve(scores)
    assert (y[..., 0].sum(-1) == 1).all()
    assert_trees(heads_of(y))
    torch.testing.assert_close(objective(scores, y, 2), best, rtol=1e-12, atol=1e-12)


def test_a_single_root_costs_no_precision():
    """Taking a constant larger than all other scores together off the root scores would round whole numbers here."""
    n = 20
    scores = torch.full((n, n + 1), 2.0**51, dtype=torch.float64)
    scores[:, 0] = torch.arange(n) % 13
    y = dl.Arborescence(single_root=True).solve(scores)
    assert y[:, 0].nonzero().tolist() == [[12]]


def test_nested_cycles_are_resolved_exactly():
    """Words 2 k - 1 and 2 k prefer each other, then the pairs, then the fours: whole numbers, so nothing is rounded."""
    n = 16
    words = torch.arange(n)
    scores = torch.zeros(n, n + 1, dtype=torch.float64)
    for level in range(4):
        block = 2**level
        near = (words // (2 * block)).unsqueeze(1) == (words // (2 * block)).unsqueeze(0)
        scores[:, 1:] += near * 10.0
    scores[:, 0] = -1000.0 - words
    y = dl.Arborescence().solve(scores)
    assert_trees(heads_of(y))
    assert objective(scores, y, 2) == best_by_networkx(scores.numpy())
    assert y[0, 0] == 1


@pytest.mark.parametrize("single_root", [False, True])
def test_lengths_from_zero_to_n_in_one_batch(single_root, generator):
    n = 6
    lengths = torch.arange(n + 1)
    scores = torch.randn(4, n + 1, n, n + 1, generator=generator, dtype=torch.float64)
    y = dl.Arborescence(lengths, single_root).solve(scores)
    for length in lengths.tolist():
        own = scores[:, length, :length, : length + 1]
        assert torch.equal(y[:, length, :length, : length + 1], dl.Arborescence(single_root=single_root).solve(own))
        rest = y[:, length].clone()
        rest[:, :length, : length + 1] = 0
        assert not rest.any()


def test_entries_beyond_a_length_and_a_words_own_entry_get_no_gradient(generator):
    lengths = torch.tensor([1, 2, 3])
    scores = torch.randn(3, 3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    cost = torch.randn(3, 3, 4, generator=generator, dtype=torch.float64)
    structure = dl.Arborescence(lengths)
    direct_loss(scores, cost, structure, epsilon=-2.0, scale=1.0, samples=50, generator=generator).sum().backward()
    for length, gradient in zip(lengths.tolist(), scores.grad, strict=True):
        assert not gradient[length:].any()
        assert not gradient[:, length + 1 :].any()
        assert not gradient.diagonal(1).any()
    assert scores.grad[1:].flatten(1).any(1).all()


def test_vmap_over_scores_and_lengths_equals_the_batched_call(generator):
    scores = torch.randn(3, 4, 3, 4, generator=generator, dtype=torch.float64)
    cost, lengths = torch.randn(3, 4, generator=generator, dtype=torch.float64), torch.tensor([1, 3, 2])

    def loss(scores, lengths):
        return direct_loss(scores, cost, dl.Arborescence(lengths), epsilon=-1.0)

    expected = loss(scores, lengths.unsqueeze(-1))
    torch.testing.assert_close(vmap(loss)(scores, lengths), expected)


@pytest.mark.parametrize("n", range(1, 6))
def test_counts_are_cayleys(n):
    scores = torch.zeros(n, n + 1)
    assert len(EVERY[n, False]) == dl.Arborescence().count(scores) == (n + 1) ** (n - 1)
    assert len(EVERY[n, True]) == dl.Arborescence(single_root=True).count(scores) == n ** (n - 1)
    for single in (False, True):
        assert len(EVERY[n, single].unique(dim=0)) == len(EVERY[n, single])


def test_length_zero_and_no_words_have_the_empty_tree():
    structure = dl.Arborescence(lengths=0, single_root=True)
    assert structure.count(torch.zeros(2, 3)) == 1
    assert torch.equal(structure.enumerate(torch.zeros(2, 3)), torch.zeros(1, 2, 3))
    assert dl.Arborescence().solve(torch.zeros(5, 0, 1)).shape == (5, 0, 1)


def test_trees_do_not_depend_on_threads_and_copies(generator):
    scores = torch.randint(3, (5000, 5, 6), generator=generator).double()
    structure = dl.Arborescence(torch.randint(6, (5000,), generator=generator), single_root=True)
    y = structure.solve(scores)
    dl.set_num_threads(2)
    for same in (structure, copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))):
        assert torch.equal(same.solve(scores), y)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dl.Arborescence(torch.tensor([1.0])), TypeError, "lengths are torch.float32, expected whole numbers"),
        (lambda: dl.Arborescence(torch.tensor([True])), TypeError, "lengths are torch.bool"),
        (lambda: dl.Arborescence(torch.tensor([2, -1])), ValueError, r"instance \(1,\) has -1 words"),
        (lambda: dl.Arborescence(single_root=1), TypeError, "single_root is 1, expected True or False"),
        (
            lambda: dl.Arborescence(torch.tensor([2, 4])).solve(torch.zeros(2, 3, 4)),
            ValueError,
            r"instance \(1,\) has 4 words, but the scores have rows for 3",
        ),
        (lambda: dl.Arborescence().solve(torch.zeros(3, 3)), ValueError, r"shape \(3, 3\), expected \(n, n \+ 1\)"),
        (lambda: dl.Arborescence().solve(torch.zeros(3)), ValueError, "needs at least 2 axes"),
        (
            lambda: dl.Arborescence(torch.tensor([2, 2])).solve(torch.zeros(3, 3, 4)),
            ValueError,
            r"lengths has batch axes \(2,\), which do not broadcast to the scores' \(3,\)",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
