"""The check of scores and costs: the largest magnitude, and whether all numbers are finite."""

import math

import numpy as np
import pytest
import torch

from directloss.structures.checks import largest_magnitude, magnitude

# Read by a kernel, and by torch: too many, too narrow, or not in one piece.
KINDS = {
    "few": torch.randn(5, 7),
    "few, float64": torch.randn(5, 7, dtype=torch.float64),
    "many": torch.randn(200, 100),
    "narrow": torch.randn(5, 7).bfloat16(),
    "turned": torch.randn(5, 7).T,
    "one": torch.tensor(-3.0),
}
every_kind = pytest.mark.parametrize("numbers", KINDS.values(), ids=KINDS)


@every_kind
def test_it_is_the_largest_absolute_number(numbers):
    assert magnitude(numbers) == numbers.abs().max().item()
    assert magnitude(-numbers) == magnitude(numbers)
    assert magnitude(0 * numbers) == 0
    assert magnitude(numbers.new_empty(0, 3)) == 0


@every_kind
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_found_wherever_it_is(numbers, bad):
    for where in {0, numbers.numel() // 2, numbers.numel() - 1}:
        spoilt = numbers.clone()
        spoilt[tuple(np.unravel_index(where, spoilt.shape))] = bad
        assert not math.isfinite(magnitude(spoilt))
        with pytest.raises(ValueError, match="scores hold 1 NaN or infinite"):
            largest_magnitude(spoilt, "scores")
