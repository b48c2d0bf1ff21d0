"""The k largest entries: the kernel against a stable sort, and against what other devices do."""

import pytest
import torch

import directloss as dl
from directloss.structures import largest
from directloss.structures.largest import largest_entries

STEPS = (0.0, 2.0, -0.5)


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def by_sorting(scores, k):
    """Of tied entries the first, in order."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k].sort(-1).values


# One; few of many (a heap); few of a short row (passes); many (a selection); all.
@pytest.mark.parametrize(
    ("n", "k"),
    [(1, 1), (7, 1), (200, 1), (200, 5), (200, 12), (9, 4), (40, 5), (143, 8), (200, 13), (200, 150), (8, 8), (9, 9)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [False, True])
def test_the_k_largest_are_those_of_a_stable_sort(n, k, dtype, tied):
    scores, cost = drawn(2, 30, n, dtype=dtype), drawn(30, n, seed=1, dtype=dtype)
    if tied:
        scores, cost = scores.round(), cost.round()
    found = largest_entries(scores, cost, STEPS, k, None).positions
    for step, positions in zip(STEPS, found, strict=True):
        assert torch.equal(positions, by_sorting(scores + step * cost, k))


@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 6), (3, 1, 6), (1, 1, 1)])
def test_cost_and_mask_broadcast(shape):
    scores, cost, mask = drawn(3, 4, 6), drawn(*shape, seed=1), drawn(4, 6, seed=2) < 1
    mask[:, :2] = True
    found = largest_entries(scores, cost, STEPS, 2, mask).positions
    for step, positions in zip(STEPS, found, strict=True):
        allowed = (scores + step * cost).masked_fill(~mask, -torch.inf)
        assert torch.equal(positions, by_sorting(allowed, 2))


@pytest.mark.parametrize("k", [1, 3])
def test_torch_and_the_kernel_give_the_same(k, monkeypatch):
    scores, cost, mask = drawn(5, 4, 9), drawn(4, 9, seed=1), torch.arange(9) != 4
    fast = largest_entries(scores, cost, STEPS, k, mask).positions
    monkeypatch.setattr(largest, "on_cpu", lambda tensor: False)
    assert torch.equal(largest_entries(scores, cost, STEPS, k, mask).positions, fast)


def test_threads_share_a_large_batch():
    scores = drawn(3000, 50)
    alone = dl.Subset(7).solve(scores)
    dl.set_num_threads(2)
    try:
        assert torch.equal(dl.Subset(7).solve(scores), alone)
    finally:
        dl.set_num_threads(None)
