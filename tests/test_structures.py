"""What every structure promises, against enumeration."""

import math
import re

import pytest
import torch
from tables import MASK, Row, best_objective, every_structure, index_in, named, objective
from torch import Tensor

import directloss as dl

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
STEPS = (0.0, 1.0, -2.5, 0.0)


def assert_best(row: Row, scores: Tensor, y: Tensor) -> None:
    """y are structures of the set and none has a larger objective, up to the rounding of a float64 sum."""
    assert y.shape == scores.shape
    index_in(y, row.every)
    reached, best = objective(scores, y, row.structure.entry_dims), best_objective(scores, row.every)
    torch.testing.assert_close(reached, best, rtol=0, atol=math.prod(row.entries) * scores.abs().max().item() * 1e-15)


@every_structure
def test_solve_reaches_the_best_of_all_structures(row):
    scores = row.scores(200)
    assert_best(row, scores, row.structure.solve(scores))


@every_structure
def test_enumerated_structures_are_distinct(row):
    every = row.every
    assert every.shape[1:] == row.entries
    assert len(every.flatten(1).unique(dim=0)) == len(every)


@pytest.mark.parametrize(
    ("structure", "entries", "count"),
    [
        (dl.Choice(), (7,), 7),
        (dl.Choice(torch.tensor([True, False, True])), (3,), 2),
        (dl.Bits(), (5,), 32),
        (dl.Bits(torch.tensor([True, False, True])), (3,), 4),
        (dl.Subset(3), (7,), 35),
        (dl.Subset(2, torch.tensor([True, False, True, True])), (4,), 3),
        (dl.Matching(), (4, 4), 24),
        (dl.Matching(), (2, 5), 20),
        (dl.Matching(), (5, 2), 20),
        (dl.Matching(MASK), (3, 3), 3),
        (dl.Matching(MASK[:2].mT), (3, 2), 4),
    ],
)
def test_enumerate_counts_what_combinatorics_says(structure, entries, count):
    scores = torch.zeros(entries)
    assert len(structure.enumerate(scores)) == structure.count(scores) == count
    assert structure.enumerate(scores.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("structure", "entries", "many"),
    [
        (dl.Choice(), (1_000_001,), "1,000,001"),
        (dl.Subset(500), (1000,), "about 10^299"),
        (dl.Matching(), (10, 11), "39,916,800"),
        (dl.Matching(), (3000, 3000), "about 10^9131"),
        (dl.Matching(torch.zeros(10, 10, dtype=torch.bool)), (10, 10), "3,628,800"),
    ],
)
def test_too_many_structures_are_counted_not_made(structure, entries, many):
    with pytest.raises(ValueError, match=re.escape(f"has {many} structures, more than the 1,000,000")):
        structure.enumerate(torch.zeros(()).expand(entries))


@every_structure
@pytest.mark.parametrize("batch", [(), (6,), (2, 1, 3)])
def test_solve_takes_any_number_of_batch_axes(row, batch):
    scores = row.scores(*batch)
    y = row.structure.solve(scores)
    assert_best(row, scores, y)
    one_by_one = [row.structure.solve(one) for one in scores.reshape(-1, *row.entries)]
    assert torch.equal(y.reshape(-1, *row.entries), torch.stack(one_by_one))


@every_structure
@pytest.mark.parametrize("batch", [(0,), (2, 0, 3)])
def test_an_empty_batch_gives_an_empty_result(row, batch):
    scores = row.scores(*batch)
    assert row.structure.solve(scores).shape == scores.shape
    assert row.structure.solve_along(scores, row.scores(), STEPS).shape == (len(STEPS), *scores.shape)


@every_structure
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_solve_keeps_dtype_and_device_and_stays_exact(row, dtype, device):
    scores = row.scores(50, dtype=dtype).to(device)
    y = row.structure.solve(scores)
    assert (y.dtype, y.device) == (scores.dtype, scores.device)
    assert_best(row, scores, y)


@every_structure
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_solve_along_keeps_dtype_and_device(row, dtype, device):
    scores, cost = row.scores(200, dtype=dtype).to(device), row.scores(200, seed=1, dtype=dtype).to(device)
    along = row.structure.solve_along(scores, cost, STEPS)
    assert (along.dtype, along.device) == (scores.dtype, scores.device)
    for step, y in zip(STEPS, along, strict=True):
        index_in(y, row.every)
        # Sums are formed in float32 at least, so half precision loses only what its scores had lost already.
        shifted = scores.double() + step * cost.double()
        reached, best = objective(shifted, y, row.structure.entry_dims), best_objective(shifted, row.every)
        rounding = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        assert (best - reached).max() <= 2 * math.prod(row.entries) * shifted.abs().max() * rounding


@every_structure
@pytest.mark.parametrize(
    "strided",
    [
        lambda row: row.scores(4, 5).transpose(0, 1),
        lambda row: row.scores(8)[::2],
        lambda row: row.scores().expand(3, *row.entries),
        lambda row: row.scores(6).movedim(0, -1).contiguous().movedim(-1, 0),
        lambda row: row.scores(6).flip(0),
    ],
    ids=["transposed", "every-second", "expanded", "batch-last", "flipped"],
)
def test_solve_does_not_depend_on_the_memory_layout(row, strided):
    scores = strided(row)
    before = scores.clone()
    assert torch.equal(row.structure.solve(scores), row.structure.solve(scores.contiguous()))
    along = row.structure.solve_along(scores, scores.flip(-1), STEPS)
    assert torch.equal(along, row.structure.solve_along(scores.contiguous(), scores.flip(-1).contiguous(), STEPS))
    assert torch.equal(scores, before), "solving changed its input"


@every_structure
@pytest.mark.parametrize("cost_batch", [(2, 3, 4), (3, 4), (4,), (2, 1, 4), (1, 1, 1), ()], ids=str)
def test_solve_along_equals_independent_solves_with_a_cost_that_broadcasts(row, cost_batch):
    scores, cost = row.scores(2, 3, 4), row.scores(*cost_batch, seed=1)
    along = row.structure.solve_along(scores, cost, STEPS)
    assert along.shape == (len(STEPS), *scores.shape)
    for step, y in zip(STEPS, along, strict=True):
        shifted = scores + step * cost
        alone = objective(shifted, row.structure.solve(shifted), row.structure.entry_dims)
        torch.testing.assert_close(objective(shifted, y, row.structure.entry_dims), alone, rtol=1e-14, atol=1e-14)
        assert_best(row, shifted, y)


@every_structure
def test_solve_never_differentiates(row):
    scores, cost = row.scores(3).requires_grad_(), row.scores(seed=1).requires_grad_()
    assert not row.structure.solve(scores).requires_grad
    assert not row.structure.solve_along(scores, cost, STEPS).requires_grad


@every_structure
@pytest.mark.parametrize("values", [1, 2, 3])
def test_ties_give_a_valid_best_structure_and_the_same_one_each_time(row, values):
    scores = torch.randint(values, (100, *row.entries), generator=torch.Generator().manual_seed(0)).double()
    y = row.structure.solve(scores)
    assert_best(row, scores, y)
    assert torch.equal(y, row.structure.solve(scores))
    assert torch.equal(y, torch.stack([row.structure.solve(one) for one in scores])), "the batch decides a tie"


@every_structure
@pytest.mark.parametrize("size", [1e-150, 1e149])
def test_extreme_magnitudes_stay_exact(row, size):
    scores = size * row.scores(50)
    assert_best(row, scores, row.structure.solve(scores))


@named("choice", "subset", "custom", "custom-unbatched")
def test_sums_that_overflow_float32_stay_exact(row):
    scores, cost = row.scores(50, dtype=torch.float32), row.scores(50, seed=1, dtype=torch.float32) * 1e38
    for step, y in zip((0.0, 1e3), row.structure.solve_along(scores, cost, (0.0, 1e3)), strict=True):
        assert_best(row, scores.double() + step * cost.double(), y)


@named("matching-3x3", "matching-4x4")
def test_a_small_step_after_a_large_one_stays_exact(row):
    scores, cost = 1e-20 * row.scores(50), row.scores(50, seed=1)
    assert_best(row, scores, row.structure.solve_along(scores, cost, (1.0, 0.0))[1])


def test_a_mask_with_batch_axes_holds_for_its_own_instances(generator):
    forbidden = torch.stack([MASK, MASK.mT, torch.zeros_like(MASK)])
    scores = torch.randn(2, 3, 3, 3, generator=generator)
    y = dl.Matching(forbidden).solve(scores)
    assert not (y.bool() & forbidden).any()
    for instance in range(3):
        assert torch.equal(y[:, instance], dl.Matching(forbidden[instance]).solve(scores[:, instance]))
