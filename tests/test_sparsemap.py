"""``sparsemap`` is the closest point of the convex hull, and its gradient the derivative of that."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from tables import PARTS, every_parts, every_structure, named

import directloss as dl
from directloss.layers.active_set import ActiveSet


def closest(every: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The point of the hull of ``every`` (N, E) closest to theta (E,), by non-negative least squares.

    With z_i = y_i - theta, ``min |sum p_i z_i|^2 + (1 - sum p_i)^2`` over p >= 0 has the direction of the shortest
    combination: for p = c q with sum q = 1 the best c leaves a / (1 + a), which grows with a = |sum q_i z_i|^2.
    """
    z = every - theta
    p, _ = nnls(np.vstack([z.T, np.ones(len(every))]), np.r_[np.zeros(z.shape[1]), 1.0])
    return every.T @ (p / p.sum())


def closest_in_parts(first: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The y of ``max sum_i p_i values_i - |y|^2 / 2``, by a general solver over the weights."""
    count = len(values)
    found = minimize(
        lambda p: ((p @ first) ** 2).sum() / 2 - p @ values,
        np.full(count, 1 / count),
        jac=lambda p: first @ (p @ first) - values,
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(count)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x @ first


@every_structure
@pytest.mark.parametrize("size", [0.3, 1.0, 5.0])
def test_sparsemap_is_the_closest_point_of_the_hull(row, size):
    scores = size * row.scores(3)
    if row.structure.nonpositive:
        scores = -scores.abs()
    y = dl.sparsemap(scores, row.structure)
    every = row.every.flatten(1).numpy()
    for theta, found in zip(scores.flatten(1).numpy(), y.flatten(1).numpy(), strict=True):
        np.testing.assert_allclose(found, closest(every, theta), atol=1e-8)


@named("choice", "subset", "matching-3x3", "chain", "spanning-tree", "knapsack")
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_the_difference_quotient_of_an_independent_solver(row, seed):
    scores, weight, every = row.scores(seed=seed), row.scores(seed=9), row.every.flatten(1).numpy()
    leaf = scores.clone().requires_grad_()
    (dl.sparsemap(leaf, row.structure) * weight).sum().backward()
    step, quotients = 1e-4, []  # the solution is piecewise linear: a step that crosses no border has no error
    for direction in np.eye(scores.numel()) * step:
        ends = [closest(every, scores.flatten().numpy() + sign * direction) for sign in (1, -1)]
        quotients.append((ends[0] - ends[1]) @ weight.flatten().numpy() / (2 * step))
    np.testing.assert_allclose(leaf.grad.flatten(), quotients, atol=1e-6)


@every_parts
def test_in_parts_the_norm_is_that_of_the_first(row):
    scores = row.scores()
    first, *_ = every = [part.flatten(1) for part in row.every]
    entries = row.structure.fit(scores)[0]
    values = sum(y @ part.expand(own).flatten() for y, part, own in zip(every, scores, entries, strict=True))
    found = dl.sparsemap(scores, row.structure)
    np.testing.assert_allclose(found.flatten(), closest_in_parts(first.numpy(), values.numpy()), atol=1e-5)
    leaves = tuple(part.requires_grad_() for part in row.scores(2))
    assert torch.autograd.gradcheck(lambda *parts: dl.sparsemap(parts, row.structure), leaves, atol=1e-6)


@named("spanning-tree", "matching-3x3")
def test_second_derivatives_are_exact(row):
    leaf = row.scores(2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda scores: dl.sparsemap(scores, row.structure) ** 2, leaf)


def test_derivatives_of_matchings_in_every_mode_are_those_of_the_active_set():
    """Forward, reverse and both: the face's own projection against autograd through the linear system."""
    scores = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    every = dl.custom(dl.Matching().solve, entry_dims=2)
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        ours, others = (mode(lambda x, s=s: dl.sparsemap(x, s))(scores) for s in (dl.Matching(), every))
        assert ours.abs().max() > 0.1
        torch.testing.assert_close(ours, others, atol=1e-9, rtol=0)
    ours, others = (
        torch.func.hessian(lambda x, s=s: (dl.sparsemap(x, s) ** 3).sum())(scores) for s in (dl.Matching(), every)
    )
    assert ours.abs().max() > 0.1
    torch.testing.assert_close(ours, others, atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0, 1e4, 1e6])
@pytest.mark.parametrize("tied", [False, True])
def test_matchings_of_any_size_and_with_ties_are_doubly_stochastic_and_optimal(size, tied):
    """Newton's method where it converges, the active set where it does not: one optimality condition for both."""
    scores = torch.randn(20, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = size * ((2 * scores).round() if tied else scores)
    y = dl.sparsemap(scores, dl.Matching())
    torch.testing.assert_close(y.sum(-1), torch.ones(20, 6, dtype=torch.float64), atol=1e-8, rtol=0)
    torch.testing.assert_close(y.sum(-2), torch.ones(20, 6, dtype=torch.float64), atol=1e-8, rtol=0)
    assert y.min() > -1e-8
    best = dl.Matching().solve(scores - y)
    gap = ((scores - y) * (best - y)).sum((-1, -2))
    assert gap.max() < 1e-8 * (1 + size)  # rounding of y times the scores


def test_at_a_vertex_the_gradient_is_exactly_zero():
    target = dl.Matching().solve(torch.randn(50, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    leaf = (10 * target).requires_grad_()
    y = dl.sparsemap(leaf, dl.Matching())
    torch.testing.assert_close(y, target)
    (y * torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).sum().backward()
    assert not leaf.grad.any()


def test_the_active_set_agrees_with_the_faster_methods():
    generator = torch.Generator().manual_seed(0)
    for structure, shape in ((dl.Choice(), (9,)), (dl.Subset(4), (9,)), (dl.Matching(), (5, 5))):
        scores = torch.randn(8, *shape, generator=generator, dtype=torch.float64)
        every = dl.custom(structure.solve, entry_dims=len(shape))  # nothing is known of it but its maximiser
        torch.testing.assert_close(dl.sparsemap(scores, every), dl.sparsemap(scores, structure), atol=1e-9, rtol=0)


def test_the_active_set_is_small():
    """Affinely independent: never more structures than entries and one."""
    row = PARTS[0]
    parts = row.scores(6)
    active, *_ = ActiveSet()(row.structure, row.structure.expanded(parts), row.structure.fit(parts)[0])
    assert active.shape[-1] <= 4 * 3 + 1
    assert active.sum(-1).max() == active.shape[-1]


@pytest.mark.parametrize("k", [torch.tensor([0, 1, 3, 5]), 5])
def test_subsets_of_any_number_of_entries(k):
    y = dl.sparsemap(torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dl.Subset(k))
    torch.testing.assert_close(y.sum(-1), torch.as_tensor(k).expand(4).double())
    assert (y >= 0).all()
    assert (y <= 1).all()
