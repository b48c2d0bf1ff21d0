"""How far the loss-augmented maximiser looks: what may be given for it."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def check_epsilon(epsilon: Any) -> float:
    """``epsilon`` as a float. Raise unless it is a step to take."""
    if not isinstance(epsilon, (float, Real)) and not (isinstance(epsilon, Tensor) and epsilon.dim() == 0):
        raise TypeError(f"epsilon is {type(epsilon).__name__}, expected a number, or a tensor of one for each instance")
    value = float(epsilon)
    if value == 0 or not math.isfinite(value):
        raise ValueError(
            f"epsilon is {epsilon}; expected a finite number other than 0 (negative pulls towards better structures)"
        )
    return value


def check_epsilons(epsilon: Tensor, batch: torch.Size) -> None:
    """Raise ValueError unless it is one finite number other than 0 for each instance."""
    if epsilon.shape != batch:
        raise ValueError(
            f"epsilon has shape {tuple(epsilon.shape)}, expected one number, or one for each instance {tuple(batch)}"
        )
    if not torch.isfinite(epsilon).all() or (epsilon == 0).any():
        raise ValueError("epsilon has 0, NaN or infinity among its numbers; expected finite numbers other than 0")


def check_ends(ends: tuple[Any, ...]) -> tuple[float, float]:
    """The two ends of a difference as floats. Raise ValueError unless the first is negative and the second positive."""
    if len(ends) != 2 or not -math.inf < ends[0] < 0 < ends[1] < math.inf:
        raise ValueError(f"epsilon is {ends}, expected a number, or a pair (behind, ahead) with behind < 0 < ahead")
    return float(ends[0]), float(ends[1])
