"""What the truth of a rule is judged by: structures of every kind, values by enumeration, finite differences."""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from oracles import Estimate
from tables import PartsRow
from torch import Tensor

import directloss as dl

Parts = tuple[Tensor, ...]
SIGMA = 0.8

# One of each kind, all scored by a tuple of parts.
TRUTH = [
    PartsRow("choice", dl.Choice(), ((4,),)),
    PartsRow("subset", dl.Subset(2), ((5,),)),
    PartsRow("matching", dl.Matching(), ((3, 3),)),
    PartsRow("chain", dl.Chain(), ((3, 2), (1, 2, 2)), batched_factors=True),
    PartsRow("spanning-tree", dl.SpanningTree(), ((6,),)),
    PartsRow("knapsack", dl.Knapsack([3, 1, 4, 2], 5), ((4,),)),
    PartsRow("grid-path", dl.GridPath(), ((3, 3),)),
    PartsRow("whole-numbers", dl.Finite(torch.tensor([[0, 0, 0], [2, -1, 0], [0, 3, 1], [-1, -1, 4]])), ((3,),)),
]
every_truth = pytest.mark.parametrize("row", TRUTH, ids=lambda row: row.name)


def as_scores(parts: Sequence[Tensor]) -> Tensor | Parts:
    """As a user gives them: one tensor, or a tuple."""
    return tuple(parts) if len(parts) > 1 else parts[0]


def values(row: PartsRow, parts: Sequence[Tensor]) -> Tensor:
    """``<parts, y>`` of every structure of one instance, (N,)."""
    return sum((part * own).flatten(1).sum(1) for part, own in zip(parts, row.every, strict=True))


def gradients(loss: Callable[..., Tensor], tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The value of ``loss(*tensors)``, and what autograd gives for each."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    value = loss(*leaves)
    return value.detach(), list(torch.autograd.grad(value, leaves))


def differences(value: Callable[..., Tensor], tensors: Sequence[Tensor], step: float = 1e-6) -> list[Tensor]:
    """Central differences of a number, entry by entry."""
    found = [torch.zeros_like(tensor) for tensor in tensors]
    for index, tensor in enumerate(tensors):
        for entry in itertools.product(*map(range, tensor.shape)):
            ends = []
            for sign in (1, -1):
                moved = [other.clone() for other in tensors]
                moved[index][entry] += sign * step
                ends.append(value(*moved))
            found[index][entry] = (ends[0] - ends[1]) / (2 * step)
    return found


def assert_true(loss: Callable[..., Tensor], value: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
    """The loss is a value that is computed otherwise, and its gradient that value's. Return the gradients."""
    ours, found = gradients(loss, tensors)
    torch.testing.assert_close(ours, value(*tensors), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found, differences(value, tensors), rtol=1e-6, atol=1e-6)
    return found


def drawn(
    rule: Callable[..., Tensor], row: PartsRow, parts: Sequence[Tensor], given: object, count: int, **options: object
) -> tuple[Tensor, Tensor]:
    """Values and gradients of so many independent calls, (count,) and (count, all parts and the scale)."""
    leaves = [part.expand(count, *part.shape).clone().requires_grad_() for part in parts]
    scale = torch.full((count,), SIGMA, dtype=torch.float64, requires_grad=True)
    value = rule(as_scores(leaves), given, row.structure, scale=scale, reduction="none", **options)
    found = torch.autograd.grad(value.sum(), [*leaves, scale])
    return value.detach(), torch.cat([gradient.reshape(count, -1) for gradient in found], 1)


def assert_within(estimate: Estimate, exact: Tensor, error: Tensor, count: float = 4.0) -> None:
    """Within so many standard errors, those of the exact value included."""
    off = (estimate.mean - exact).abs()
    away = torch.where(off > 1e-12, off / torch.hypot(estimate.error, error).clamp_min(1e-300), 0.0)
    assert away.max() < count, f"{away.max():.1f} standard errors"
