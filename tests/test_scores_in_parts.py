"""What every structure promises whose scores come in parts, against enumeration and dense definitions."""

import pytest
import torch
from tables import PARTS, direct_loss, every_parts
from torch import Tensor
from torch.func import grad, vmap

import directloss as dl

STEPS = (0.0, 1.0, -2.5)
SIDES = pytest.mark.parametrize("sides", ["one", "both"])


def value(scores: tuple[Tensor, ...], y: tuple[Tensor, ...], axes: tuple[int, ...]) -> Tensor:
    """``<scores, y>`` over all parts; ``axes`` are how many axes the entries of each have."""
    terms = [(s.double() * part.double()).flatten(-own).sum(-1) for s, part, own in zip(scores, y, axes, strict=True)]
    return sum(terms[1:], terms[0])


def entry_axes(row) -> tuple[int, ...]:
    return tuple(part.dim() - 1 for part in row.every)


def best(row, scores: tuple[Tensor, ...]) -> Tensor:
    """The largest value of all structures, (B...)."""
    axes = entry_axes(row)
    apart = [s.unsqueeze(s.dim() - own) if s.dim() > own else s for s, own in zip(scores, axes, strict=True)]
    return value(tuple(apart), row.every, axes).amax(-1)


def assert_best(row, scores, y):
    axes = entry_axes(row)
    batch = y[0].shape[: y[0].dim() - axes[0]]
    flat = [part.reshape(*batch, 1, -1) for part in y]
    same = torch.stack([(f == e.flatten(1)).all(-1) for f, e in zip(flat, row.every, strict=True)]).all(0)
    assert same.any(-1).all(), "the parts are not those of one structure"
    torch.testing.assert_close(value(scores, y, axes), best(row, scores), rtol=1e-14, atol=1e-13)


@every_parts
@pytest.mark.parametrize("batch", [(), (50,), (2, 1, 3)], ids=str)
def test_all_parts_are_those_of_the_best_structure(row, batch):
    scores = row.scores(*batch)
    y = row.structure.solve(scores, parts=True)
    assert [part.dim() - len(batch) for part in y] == list(entry_axes(row))
    assert_best(row, scores, y)
    assert torch.equal(row.structure.solve(scores), y[0])


@every_parts
def test_solve_along_equals_independent_solves(row):
    scores, cost = row.scores(3, 4), row.cost(4)
    for step, y in zip(STEPS, row.structure.solve_along(scores, cost, STEPS), strict=True):
        assert torch.equal(y, row.structure.solve((scores[0] + step * cost, *scores[1:])))


@every_parts
def test_enumerated_structures_are_distinct_counted_and_given_by_their_first_part(row):
    every = row.every
    assert len(every[0].flatten(1).unique(dim=0)) == len(every[0]) == row.structure.count(row.scores())
    assert torch.equal(row.structure.enumerate(row.scores()), every[0])
    first, *factors = row.scores()
    scores = (first.expand(len(every[0]), *first.shape), *factors)
    completed = row.structure.complete(every[0], scores)
    for found, part in zip(completed, every, strict=True):
        assert torch.equal(found.dense(part.dtype), part)


@every_parts
def test_a_completed_target_broadcasts_to_the_batch(row):
    scores, target = row.scores(5), row.every[0][0]
    found = row.structure.complete(target, scores)
    for vertices, part in zip(found, row.every, strict=True):
        assert torch.equal(vertices.dense(part.dtype), part[0].expand(5, *part.shape[1:]))


def by_hand(row, scores, cost, epsilon, sides):
    """The gradient to each part, by autograd through ``<part, y_ahead - y_behind> / width`` with dense structures."""
    first, *factors = scores
    y, ahead, behind = (row.structure.solve((first + t * cost, *factors), parts=True) for t in (0.0, epsilon, -epsilon))
    if sides == "one":
        difference = [(a - b) / epsilon for a, b in zip(ahead, y, strict=True)]
    else:
        difference = [(a - b) / (2 * epsilon) for a, b in zip(ahead, behind, strict=True)]
    leaves = [part.clone().requires_grad_() for part in scores]
    axes = entry_axes(row)
    weights = torch.arange(1.0, 1 + cost[..., 0, 0].numel(), dtype=torch.float64).reshape(cost.shape[:-2])
    (value(tuple(leaves), tuple(difference), axes) * weights).sum().backward()
    return (cost * y[0]).flatten(-2).sum(-1), weights, [leaf.grad for leaf in leaves]


@every_parts
@SIDES
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)], ids=str)
def test_gradients_reach_every_part_as_the_definition_says(row, sides, batch):
    scores, cost = row.scores(*batch), row.cost(*batch)
    loss, weights, gradients = by_hand(row, scores, cost, -1.5, sides)
    leaves = tuple(part.clone().requires_grad_() for part in scores)
    found = direct_loss(leaves, cost, row.structure, epsilon=-1.5, sides=sides)
    torch.testing.assert_close(found.detach(), loss)
    (found * weights).sum().backward()
    for leaf, gradient in zip(leaves, gradients, strict=True):
        torch.testing.assert_close(leaf.grad, gradient)


@every_parts
def test_noise_and_its_scale_live_on_the_first_part(row):
    scores, cost = row.scores(4), row.cost(4)
    scale = torch.linspace(0.5, 2, 4, dtype=torch.float64).requires_grad_()
    gamma = dl.Gumbel().sample((7, *scores[0].shape), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = tuple(part.clone().requires_grad_() for part in scores)
    direct_loss(leaves, cost, row.structure, epsilon=0.5, scale=scale, noise=gamma).sum().backward()
    theta = scores[0] + scale.detach()[:, None, None] * gamma
    y, ahead = (row.structure.solve((theta + t * cost, *scores[1:]), parts=True) for t in (0.0, 0.5))
    difference = [(a - b) / 0.5 / 7 for a, b in zip(ahead, y, strict=True)]
    torch.testing.assert_close(scale.grad, (difference[0] * gamma).sum((0, 2, 3)))
    copies = [part.clone().requires_grad_() for part in scores]
    value(tuple(copies), tuple(difference), entry_axes(row)).sum().backward()
    for leaf, copy in zip(leaves, copies, strict=True):
        torch.testing.assert_close(leaf.grad, copy.grad)


@every_parts
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions_reduce_the_gradients_of_every_part(row, reduction):
    scores, cost = row.scores(2, 3), row.cost(2, 3)
    results = []
    for how in (reduction, "none"):
        leaves = tuple(part.clone().requires_grad_() for part in scores)
        loss = dl.direct_loss(leaves, cost, row.structure, epsilon=-1.5, reduction=how)
        (loss if how != "none" else getattr(loss, reduction)()).backward()
        results.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*results)


@every_parts
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_parts_keep_their_dtype_and_low_precision_stays_exact(row, dtype):
    scores = row.scores(30, dtype=dtype)
    y = row.structure.solve(scores, parts=True)
    assert {part.dtype for part in y} == {dtype}
    assert_best(row, scores, tuple(part.double() for part in y))
    leaves = tuple(part.requires_grad_() for part in scores)
    direct_loss(leaves, row.cost(30).to(dtype), row.structure, epsilon=2.0).sum().backward()
    assert {leaf.grad.dtype for leaf in leaves} == {dtype}


@every_parts
def test_an_empty_batch_has_empty_parts_and_no_gradient(row):
    scores = tuple(part.requires_grad_() for part in row.scores(0))
    assert all(0 in part.shape for part in row.structure.solve(scores, parts=True))
    direct_loss(scores, row.cost(), row.structure, epsilon=1.0).sum().backward()
    assert not any(part.grad.any() for part in scores)


@every_parts
def test_vmap_of_grad_equals_the_batched_call(row):
    scores, cost = row.scores(5), row.cost(5)
    count = len(scores)

    def loss(cost, *parts):
        return direct_loss(parts, cost, row.structure, epsilon=-0.5)

    dims = (0, 0, *[0 if row.batched_factors else None] * (count - 1))
    each = vmap(grad(loss, argnums=tuple(range(1, count + 1))), in_dims=dims)(cost, *scores)
    leaves = tuple(part.clone().requires_grad_() for part in scores)
    loss(cost, *leaves).sum().backward()
    for leaf, found in zip(leaves, each, strict=True):
        torch.testing.assert_close(found if found.shape == leaf.shape else found.sum(0), leaf.grad)


@every_parts
def test_a_factor_may_have_batch_axes_that_the_first_part_lacks(row):
    first, *factors = row.scores(4)
    if not row.batched_factors:
        factors = [
            part.expand(4, *[1] * (own - part.dim()), *part.shape).clone()
            for part, own in zip(factors, entry_axes(row)[1:], strict=True)
        ]
    shared = (first[0], *factors)
    copied = (shared[0].expand(4, *shared[0].shape), *shared[1:])
    for found, part in zip(
        row.structure.solve(shared, parts=True), row.structure.solve(copied, parts=True), strict=True
    ):
        assert torch.equal(found, part)
    gradients = []
    for given in (shared, copied):
        leaves = tuple(part.detach().clone().requires_grad_() for part in given)
        direct_loss(leaves, row.cost(), row.structure, epsilon=-1.0).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(gradients[0][0], gradients[1][0].sum(0))
    torch.testing.assert_close(gradients[0][1:], gradients[1][1:])


@every_parts
def test_a_criterion_trains_every_part(row):
    scores = tuple(part.requires_grad_() for part in row.scores(5))
    criterion = dl.DirectLoss(row.structure, epsilon=dl.GrowingEpsilon(-1.0), sides="both", samples=3)
    loss, y = criterion(scores, row.cost(5), scale=1.0, return_structure=True)
    loss.backward()
    assert y.shape == (3, *scores[0].shape)
    assert all(part.grad is not None for part in scores)


def test_the_table_has_shared_and_own_factors():
    assert {row.batched_factors for row in PARTS} == {True, False}
