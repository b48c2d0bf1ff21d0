"""The matching solver against SciPy's on random, tied, degenerate and badly scaled instances.

``DIRECTLOSS_FUZZ_INSTANCES`` says how many (``make fuzz``: 200,000).
"""

import os
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "20000"))
BATCH = 100  # instances of one hypothesis example


def sorting_scores(rng, shape):
    """x_i * j: rows want the same columns in the same order, and neighbours nearly tie."""
    return rng.random((*shape[:-1], 1)) * np.arange(1, shape[-1] + 1)


def low_rank(rng, shape):
    return rng.standard_normal((*shape[:-1], 3)) @ rng.standard_normal((shape[0], 3, shape[2]))


def toeplitz(rng, shape):
    """Constant along diagonals."""
    values = rng.standard_normal((shape[0], shape[1] + shape[2] - 1))
    return values[:, np.arange(shape[1])[:, None] - np.arange(shape[2]) + shape[2] - 1]


def near_duplicates(rng, shape):
    return rng.random((shape[0], 1, shape[2])) + 1e-9 * rng.random(shape)


# Kinds whose values are small integers are solved exactly, so their objectives must agree to the last bit.
INTEGER = {"ties", "constant", "binary", "row of ones", "digits"}
KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "binary": lambda rng, shape: (rng.random(shape) < rng.random()).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "row of ones": lambda rng, shape: np.broadcast_to(np.arange(shape[1])[:, None] == shape[1] // 2, shape).astype(
        float
    ),
    "digits": lambda rng, shape: rng.integers(0, 10, shape).astype(float),
    "near 2^53": lambda rng, shape: 2.0**53 - rng.integers(0, 10, shape),
    "rows scaled": lambda rng, shape: rng.random(shape) * 10.0 ** rng.integers(-10, 11, (*shape[:-1], 1)),
    "low rank": low_rank,
    "toeplitz": toeplitz,
    "near duplicates": near_duplicates,
    "huge": lambda rng, shape: 1e30 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
    "large offset": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "sorting": sorting_scores,
    "sorting, few values": lambda rng, shape: np.round(sorting_scores(rng, shape), 1),
    "sorting, noisy": lambda rng, shape: sorting_scores(rng, shape) + 0.1 * rng.standard_normal(shape),
    "rank one": lambda rng, shape: rng.standard_normal((*shape[:-1], 1)) * rng.standard_normal((shape[0], 1, shape[2])),
}
CASES = {
    "kind": st.sampled_from(sorted(KINDS)),
    "rows": st.one_of(st.integers(1, 12), st.integers(1, 24), st.sampled_from([1, 16, 17, 40])),
    # Most are square; the rest have more columns or more rows.
    "extra": st.one_of(st.just(0), st.integers(-10, 10)),
    "masked": st.sampled_from([0.0, 0.0, 0.1, 0.4, 0.8]),
    "shared_mask": st.booleans(),
    "dtype": st.sampled_from([torch.float32, torch.float64]),
    "steps": st.sampled_from([(0.0, -1.0), (0.0, 2.0, -2.0), (1e-3, 1.0, 0.0)]),
    "cost_kind": st.sampled_from(["ties", "normal", "sorting"]),
    "cost_period": st.sampled_from([1, BATCH]),
    "threads": st.sampled_from([1, 2]),
    "seed": st.integers(0, 2**32 - 1),
}


def reference(theta, forbidden):
    """SciPy's best objective of every instance; NaN where there is no perfect matching."""
    best = np.full(len(theta), np.nan)
    matrices = theta if forbidden is None else np.where(forbidden, -np.inf, theta)
    for i, matrix in enumerate(matrices):
        try:
            rows, columns = linear_sum_assignment(matrix, maximize=True)
        except ValueError:
            continue
        best[i] = theta[i, rows, columns].sum()
    return best


def check(y, theta, best, forbidden, magnitude):
    """y are perfect matchings that avoid the mask and are as good as SciPy's, up to rounding at ``magnitude``."""
    n, m = theta.shape[1:]
    y = y.double().numpy()
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum((1, 2)) == min(n, m)).all()
    assert y.sum(1).max() <= 1
    assert y.sum(2).max() <= 1
    assert forbidden is None or not (y.astype(bool) & forbidden).any()
    # Each of up to n path steps may lose a few units in the last place of the largest number.
    assert (np.abs((y * theta).sum((1, 2)) - best) <= min(n, m) * magnitude * 1e-12).all()


def test_matchings_are_as_good_as_scipys():
    solved = 0

    @settings(
        max_examples=-(-INSTANCES // BATCH),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(**CASES)
    @example(
        kind="ties", rows=6, extra=0, masked=0.8, shared_mask=True, dtype=torch.float64, steps=(0.0, -1.0),
        cost_kind="ties", cost_period=1, threads=2, seed=0,
    )  # fmt: skip
    def compare(kind, rows, extra, masked, shared_mask, dtype, steps, cost_kind, cost_period, threads, seed):
        nonlocal solved
        rng = np.random.default_rng(seed)
        shape = (BATCH, rows, max(1, rows + extra))
        scores = torch.from_numpy(KINDS[kind](rng, shape)).to(dtype).expand(shape)
        cost = torch.from_numpy(KINDS[cost_kind](rng, (cost_period, *shape[1:]))).to(dtype)
        mask = rng.random((1 if shared_mask else BATCH, *shape[1:])) < masked if masked else None
        forbidden = None if mask is None else np.broadcast_to(mask, shape)
        theta = scores.double().numpy()
        best = reference(theta, forbidden)
        dl.set_num_threads(threads)
        solved += BATCH

        possible = ~np.isnan(best)
        if not possible.all():
            with pytest.raises(ValueError, match="without a perfect matching") as error:
                dl.Matching(torch.from_numpy(mask)).solve(scores)
            assert not possible[int(re.search(r"instance \((\d+),\)", str(error.value))[1])], "blames a solvable one"
            if not possible.any():
                return
            scores, theta, best, forbidden = scores[possible], theta[possible], best[possible], forbidden[possible]
            cost = cost if cost_period == 1 else cost[possible]
        structure = dl.Matching(None if forbidden is None else torch.from_numpy(forbidden.copy()))
        check(structure.solve(scores), theta, best, forbidden, 0.0 if kind in INTEGER else np.abs(theta).max((1, 2)))
        exact = kind in INTEGER and cost_kind in INTEGER and 1e-3 not in steps
        magnitude = np.zeros(len(theta))
        for step, y in zip(steps, structure.solve_along(scores, cost, steps), strict=True):
            shifted = theta + step * cost.double().numpy()
            # A warm start carries the rounding of the steps before along.
            magnitude = np.maximum(magnitude, np.abs(shifted).max((1, 2)))
            check(y, shifted, reference(shifted, forbidden), forbidden, 0.0 if exact else magnitude)

    compare()
    assert solved >= INSTANCES


@pytest.mark.parametrize("n", [48, 65, 130])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_large_matchings_are_as_good_as_scipys(kind, n):
    rng = np.random.default_rng(n)
    scores, cost = (torch.from_numpy(KINDS[name](rng, (3, n, n))) for name in (kind, "ties"))
    for step, y in zip((0.0, 1.0, -4.0), dl.Matching().solve_along(scores, cost, (0.0, 1.0, -4.0)), strict=True):
        theta = (scores + step * cost).numpy()
        check(y, theta, reference(theta, None), None, 0.0 if kind in INTEGER else np.abs(theta).max((1, 2)))


def test_integers_that_fill_a_float_are_solved_exactly():
    last_digits = np.random.default_rng(0).integers(0, 10, (20, 60, 60))
    y = dl.Matching().solve(torch.from_numpy(2.0**53 - last_digits)).numpy().astype(int)
    assert ((y * -last_digits).sum((1, 2)) == reference(-last_digits, None)).all()
