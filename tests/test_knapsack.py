"""Knapsacks: against enumeration and SciPy's HiGHS.

``DIRECTLOSS_FUZZ_INSTANCES`` says how many instances are compared (``make fuzz``: 200,000).
"""

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from tables import best_objective, objective

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "2000"))
BATCH = 50
SCORES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.random(shape),
    "ties": lambda rng, shape: rng.integers(-1, 3, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-1, 3))),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
}
WEIGHTS = {
    "small": lambda rng, shape: rng.integers(0, 4, shape),
    "spread": lambda rng, shape: rng.integers(1, 60, shape),
    "common divisor": lambda rng, shape: 7 * rng.integers(1, 9, shape),
    "equal": lambda rng, shape: np.full(shape, int(rng.integers(0, 9))),
    "large": lambda rng, shape: rng.integers(0, 5000, shape),
}


def subsets(n):
    return np.arange(2**n)[:, None] >> np.arange(n) & 1


def test_knapsacks_are_the_best_of_all_subsets():
    rng = np.random.default_rng(0)
    for example in range(-(-INSTANCES // BATCH)):
        kind, heavy = list(SCORES)[example % len(SCORES)], list(WEIGHTS)[example // 2 % len(WEIGHTS)]
        n = int(rng.integers(1, 9))
        scores = SCORES[kind](rng, (BATCH, n))
        weights = WEIGHTS[heavy](rng, (BATCH, n) if example % 2 else (n,))
        capacity = rng.integers(0, weights.sum(-1).max() + 2, BATCH) if example % 3 else int(rng.integers(0, 20))
        dl.set_num_threads(1 + example % 2)
        structure = dl.Knapsack(torch.from_numpy(weights), torch.as_tensor(capacity))
        y = structure.solve(torch.from_numpy(scores)).numpy()
        assert ((y == 0) | (y == 1)).all()
        assert ((y * weights).sum(1) <= capacity).all()
        assert not (y.astype(bool) & (scores <= 0)).any()
        every = subsets(n)
        fits = np.broadcast_to(weights, scores.shape) @ every.T <= np.reshape(capacity, (-1, 1))
        best = np.where(fits, scores @ every.T, -np.inf).max(1)
        assert (np.abs((y * scores).sum(1) - best) <= 1e-14 * n * np.abs(scores).max(1)).all(), (kind, heavy)


def test_knapsacks_agree_with_highs(generator):
    rng = np.random.default_rng(2)
    for n, capacity in ((30, 100), (50, 500), (40, 63), (40, 64)):
        weights = rng.integers(1, 40, n)
        scores = torch.rand(10, n, generator=generator, dtype=torch.float64)
        y = dl.Knapsack(torch.from_numpy(weights), capacity).solve(scores)
        assert (y @ torch.from_numpy(weights).double() <= capacity).all()
        for one, found in zip(scores, y, strict=True):
            best = milp(
                -one.numpy(),
                constraints=LinearConstraint(weights[None], ub=capacity),
                integrality=1,
                bounds=Bounds(0, 1),
                options={"mip_rel_gap": 0},
            )
            torch.testing.assert_close(objective(one, found, 1).item(), -best.fun, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offset", range(-9, 10))
def test_capacities_around_the_width_of_a_vector(offset, generator):
    weights = torch.tensor([1, 2, 3, 5, 7, 8, 9, 11])
    capacity = max(0, 16 + offset)
    scores = torch.rand(50, 8, generator=generator, dtype=torch.float64)
    structure = dl.Knapsack(weights, capacity)
    every = structure.enumerate(scores[0])
    torch.testing.assert_close(
        objective(scores, structure.solve(scores), 1), best_objective(scores, every), rtol=1e-14, atol=1e-14
    )
    assert structure.count(scores[0]) == len(every) == int((torch.from_numpy(subsets(8)) @ weights <= capacity).sum())


def test_data_of_the_instances_hold_for_samples_and_steps(generator):
    weights, capacity = torch.randint(1, 6, (3, 5), generator=generator), torch.tensor([[4], [9]])
    scores, cost = (torch.randn(4, 2, 3, 5, generator=generator) for _ in range(2))
    along = dl.Knapsack(weights, capacity).solve_along(scores, cost, (0.0, -1.0))
    for step, y in zip((0.0, -1.0), along, strict=True):
        shifted = (scores.double() + step * cost.double()).float()
        for i in range(2):
            for j in range(3):
                alone = dl.Knapsack(weights[j], capacity[i, 0]).solve(shifted[:, i, j])
                assert torch.equal(y[:, i, j], alone)


def test_gradients_with_data_of_the_instances_are_the_definition(generator):
    structure = dl.Knapsack(torch.tensor([[1, 2, 3], [3, 2, 1]]), torch.tensor([3, 4]))
    scores, cost = (torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    noise = torch.randn(6, 2, 3, generator=generator, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    dl.direct_loss(leaf, cost, structure, epsilon=-1.5, scale=1.0, noise=noise, reduction="sum").backward()
    y, ahead = (structure.solve(scores + noise + step * cost) for step in (0.0, -1.5))
    torch.testing.assert_close(leaf.grad, ((ahead - y) / -1.5).mean(0))


def test_vmap_maps_weights_and_capacity(generator):
    weights, capacity = torch.tensor([[1, 2, 3], [3, 2, 1]]), torch.tensor([3, 4])
    scores, cost = (torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in range(2))

    def loss(scores, cost, weights, capacity):
        structure = dl.Knapsack(weights, capacity)
        return dl.direct_loss(scores, cost, structure, epsilon=-1.5, reduction="none")

    mapped = torch.func.vmap(loss)(scores, cost, weights, capacity)
    torch.testing.assert_close(mapped, loss(scores, cost, weights, capacity))


def test_items_that_cannot_gain_stay_out_and_weightless_ones_that_can_are_in():
    structure = dl.Knapsack([0, 0, 0, 1], 0)
    assert structure.solve(torch.tensor([1.0, 0.0, -1.0, 5.0])).tolist() == [1, 0, 0, 0]
    assert not dl.Knapsack([1, 1], 2).solve(torch.zeros(2)).any()


def test_of_tied_sets_the_one_without_the_last_item_is_taken():
    assert dl.Knapsack([2, 2, 2], 4).solve(torch.ones(3)).tolist() == [1, 1, 0]
    assert dl.Knapsack([4, 2, 2], 4).solve(torch.tensor([2.0, 1, 1])).tolist() == [1, 0, 0]
    scores = torch.randint(3, (1000, 8), generator=torch.Generator().manual_seed(0)).double()
    structure = dl.Knapsack([1, 2, 3, 4, 5, 6, 7, 8], 12)
    every = structure.enumerate(scores[0])
    ranked = every[np.lexsort(every.numpy().T)]  # the last item decides first
    tied = ranked[(scores @ ranked.mT).argmax(1)]
    one_thread = structure.solve(scores)
    assert torch.equal(one_thread * (scores > 0), tied * (scores > 0))
    dl.set_num_threads(2)
    assert torch.equal(structure.solve(scores), one_thread)
    assert torch.equal(torch.stack([structure.solve(one) for one in scores[:50]]), one_thread[:50])


def test_huge_capacities_are_no_work_when_everything_fits_or_has_a_common_divisor():
    assert dl.Knapsack([2**40, 1], 2**53).solve(torch.ones(2)).tolist() == [1, 1]
    assert dl.Knapsack([2**50, 2**50, 2**50], 2**51).solve(torch.tensor([1.0, 3, 2])).tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match=r"instance \(1,\) has 2 items and a capacity up to .* too many for a dynamic"):
        dl.Knapsack([2**50, 2**50 + 1], torch.tensor([1, 2**50 + 1])).solve(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("weights", "capacity", "error", "message"),
    [
        ([1, -2], 3, ValueError, r"weights of instance \(\), item 1: got -2, expected a whole number from 0"),
        ([[1, 2], [1.0, 2.5]], 3, ValueError, r"weights of instance \(1,\), item 1: got 2.5, expected a whole number"),
        ([1.0, float("nan")], 3, ValueError, r"weights of instance \(\), item 1: got nan"),
        ([1.0, float("inf")], 3, ValueError, r"weights of instance \(\), item 1: got inf"),
        ([1, 2], -1, ValueError, r"capacity of instance \(\): got -1, expected a whole number from 0"),
        ([1, 2], 2.5, ValueError, r"capacity of instance \(\): got 2.5"),
        ([1, 2], [3, -4], ValueError, r"capacity of instance \(1,\): got -4"),
        ([True, False], 1, TypeError, "weights are torch.bool, expected whole numbers"),
        ("ab", 1, TypeError, "weights: got str, expected whole numbers"),
        ([1], None, TypeError, "capacity: got NoneType, expected whole numbers"),
        (3, 3, ValueError, r"weights are one number, expected \(n,\)"),
    ],
)
def test_bad_data_are_refused(weights, capacity, error, message):
    with pytest.raises(error, match=message):
        dl.Knapsack(weights, capacity)


def test_data_must_fit_the_scores():
    with pytest.raises(ValueError, match="weights are for 2 items, but the scores have 3; they must agree"):
        dl.Knapsack([1, 2], 3).solve(torch.zeros(3))
    with pytest.raises(
        ValueError, match=r"weights has batch axes \(4,\), which do not broadcast to the scores' \(3,\)"
    ):
        dl.Knapsack(torch.ones(4, 2), 3).solve(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"capacity has batch axes \(4,\)"):
        dl.Knapsack([1, 2], torch.ones(4)).solve(torch.zeros(3, 2))


def test_large_sets_are_counted_not_made():
    assert dl.Knapsack([1] * 100, 100).count(torch.zeros(100)) == 2**100
    with pytest.raises(ValueError, match=r"about 10\^30 structures"):
        dl.Knapsack([1] * 100, 100).enumerate(torch.zeros(100))
    assert len(dl.Knapsack([1] * 100, 1).enumerate(torch.zeros(100))) == 101


def test_copies_solve_alike(generator):
    structure = dl.Knapsack(torch.tensor([[1.0, 2, 3], [2, 2, 2]]), 4)
    scores = torch.randn(2, 3, generator=generator)
    for other in (copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))):
        assert torch.equal(other.solve(scores), structure.solve(scores))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (3,), (1, 3)])
def test_any_batch(shape):
    assert dl.Knapsack([1, 2, 3], 3).solve(torch.ones(shape)).shape == shape
    assert dl.Knapsack([], 3).solve(torch.ones(4, 0)).shape == (4, 0)
