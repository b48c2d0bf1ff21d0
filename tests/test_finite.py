"""Explicit lists of vertices against plain loops over them."""

import os

import numpy as np
import pytest
import torch
from tables import objective

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "3000"))


def test_the_best_vertex_is_found_on_random_tied_and_badly_scaled_instances():
    for seed in range(-(-INSTANCES // 100)):
        rng = np.random.default_rng(seed)
        count, entries = int(rng.integers(1, 12)), int(rng.integers(1, 8))
        leading = [(), (100,), (1,), (5, 20), (5, 1)][seed % 5]
        batch = (5, 20) if len(leading) == 2 else (100,)
        vertices = rng.integers(-2, 3, (*leading, count, entries)).astype(float)
        if seed % 3 == 0:
            vertices = vertices * rng.standard_normal(vertices.shape) * 10.0 ** rng.integers(-6, 7, vertices.shape)
        scores = rng.integers(-2, 3, (*batch, entries)) * (1.0 if seed % 2 else rng.standard_normal((*batch, entries)))
        cost, steps = torch.from_numpy(rng.standard_normal((batch[-1], entries))), (0.0, 0.7, -20.0)
        along = dl.Finite(torch.from_numpy(vertices)).solve_along(torch.from_numpy(scores), cost, steps)
        each = np.broadcast_to(vertices, (*batch, count, entries))
        for step, y in zip(steps, along.numpy(), strict=True):
            theta = scores + step * cost.numpy()
            assert (y[..., None, :] == each).all(-1).any(-1).all()
            values = (theta[..., None, :] * each).sum(-1)
            size = (np.abs(theta)[..., None, :] * np.abs(each)).sum(-1).max(-1)
            assert (values.max(-1) - (theta * y).sum(-1) <= 4 * entries * size * 1e-15).all()


def test_a_tie_does_not_depend_on_the_batch_though_sums_round_differently():
    """All triples of 40 equal scores are equally good, but 0.1 + 0.1 + ... depends on the order of the sum."""
    vertices = (torch.rand(300, 40, generator=torch.Generator().manual_seed(0)).argsort(-1) < 17).double()
    scores = torch.full((200, 40), 0.1, dtype=torch.float64)
    y = dl.Finite(vertices).solve(scores)
    assert torch.equal(y, vertices[0].expand_as(y))
    for size in (1, 2, 3, 7, 64):
        assert torch.equal(dl.Finite(vertices).solve(scores[:size]), y[:size])
    assert torch.equal(dl.Finite(vertices).solve(scores[0]), y[0])


def test_a_list_larger_than_what_is_held_at_a_time_is_solved_in_pieces(monkeypatch, generator):
    monkeypatch.setattr("directloss.structures.finite._CHUNK", 64)
    vertices, scores = torch.randn(20, 3, generator=generator), torch.randn(4, 11, 3, generator=generator)
    y = dl.Finite(vertices).solve(scores)
    assert torch.equal(y, vertices[(scores @ vertices.mT).argmax(-1)])


def test_each_instance_chooses_from_its_own_list(generator):
    vertices = torch.randn(2, 5, 3, 2, generator=generator)
    scores, cost = torch.randn(4, 2, 3, 2, generator=generator), torch.randn(2, 3, 2, generator=generator)
    structure = dl.Finite(vertices, entry_dims=2)
    leaf = scores.clone().requires_grad_()
    dl.direct_loss(leaf, cost, structure, epsilon=-1.0, reduction="sum").backward()
    for instance in range(2):
        alone = dl.Finite(vertices[instance], entry_dims=2)
        assert torch.equal(structure.solve(scores)[:, instance], alone.solve(scores[:, instance]))
        own = scores[:, instance].clone().requires_grad_()
        dl.direct_loss(own, cost[instance], alone, epsilon=-1.0, reduction="sum").backward()
        assert own.grad.any()
        torch.testing.assert_close(leaf.grad[:, instance], own.grad)


def test_another_structures_vertices_give_its_solutions(generator):
    every = dl.Matching().enumerate(torch.zeros(4, 4))
    scores = torch.randn(50, 4, 4, generator=generator)
    y = dl.Finite(every, entry_dims=2).solve(scores)
    torch.testing.assert_close(objective(scores, y, 2), objective(scores, dl.Matching().solve(scores), 2))


@pytest.mark.parametrize(
    ("make", "scores", "message"),
    [
        (lambda: dl.Finite([[1.0]]), torch.zeros(1), "vertices is list, expected a torch.Tensor"),
        (lambda: dl.Finite(torch.zeros(3)), torch.zeros(3), r"vertices have shape \(3,\), expected \(\.\.\., N, \*E\)"),
        (lambda: dl.Finite(torch.zeros(3, 2), 0), torch.zeros(2), "entry_dims is 0, expected at least 1"),
        (lambda: dl.Finite(torch.zeros(0, 3)), torch.zeros(3), "N = 0 leaves nothing to choose"),
        (lambda: dl.Finite(torch.tensor([[0.0], [torch.inf]])), torch.zeros(1), r"vertex \(1,\) is not finite"),
        (lambda: dl.Finite(torch.zeros(4, 3)), torch.zeros(2), r"scores have entries \(2,\), but the vertices \(3,\)"),
        (lambda: dl.Finite(torch.zeros(5, 4, 3)), torch.zeros(2, 3), r"vertices has batch axes \(5,\), which do not"),
    ],
)
def test_bad_input_is_refused_at_the_boundary(make, scores, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make().solve(scores)
