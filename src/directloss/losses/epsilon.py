"""How far the loss-augmented maximiser looks: what may be given for it."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

Epsilon = float | Tensor | tuple[float, float]


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


def fit_epsilon(
    epsilon: Epsilon, one_sided: bool, batch: torch.Size, device: torch.device
) -> tuple[tuple[float, float], Tensor | None]:
    """The two ends of the difference, and what multiplies them for each instance (B...), if that differs."""
    if isinstance(epsilon, tuple):
        if len(epsilon) != 2 or not -math.inf < epsilon[0] < 0 < epsilon[1] < math.inf:
            raise ValueError(
                f"epsilon is {epsilon}, expected a number, or a pair (behind, ahead) with behind < 0 < ahead"
            )
        return (float(epsilon[0]), float(epsilon[1])), None
    if not isinstance(epsilon, Tensor) or not epsilon.dim():
        ahead, each = check_epsilon(epsilon), None
    else:
        if epsilon.shape != batch:
            raise ValueError(
                f"epsilon has shape {tuple(epsilon.shape)}, expected one number, or one for each instance "
                f"{tuple(batch)}"
            )
        ahead, each = 1.0, epsilon.detach().to(device, torch.float64)
        if not torch.isfinite(each).all() or (each == 0).any():
            raise ValueError("epsilon has 0, NaN or infinity among its numbers; expected finite numbers other than 0")
    return (0.0 if one_sided else -ahead, ahead), each
