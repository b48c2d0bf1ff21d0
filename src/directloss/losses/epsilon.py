"""How far the loss-augmented maximiser looks."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn


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


class AdaptiveEpsilon(nn.Module):
    """The paper's rule: epsilon grows when no instance gives a difference although the loss is positive.

    The value is a buffer in float64, whatever the dtype of the module around it: it is saved and restored with the
    ``state_dict`` of the criterion that holds it.

    Args:
        start: first value; its sign is kept.
        growth: factor of each step.
        limit: largest magnitude, by default 100 times that of ``start`` (without one, epsilon runs away on costs
            that the solver can always satisfy).
        reset: go back to ``start`` as soon as some instance gives a difference again.
        shape: of independent epsilons, for models that are trained side by side; () is one.
    """

    value: Tensor

    def __init__(
        self,
        start: float,
        growth: float = 1.1,
        limit: float | None = None,
        reset: bool = False,
        shape: tuple[int, ...] = (),
    ):
        super().__init__()
        self.start = check_epsilon(start)
        if not growth > 1:
            raise ValueError(f"growth is {growth}, expected a factor above 1")
        self.growth = growth
        self.limit = 100 * abs(self.start) if limit is None else abs(limit)
        if not self.limit >= abs(self.start):
            raise ValueError(f"limit is {limit}, below the starting magnitude {abs(self.start)}")
        self.reset = reset
        self.register_buffer("value", torch.full(shape, self.start, dtype=torch.float64, device="cpu"))

    def __float__(self) -> float:
        return float(self.value)

    def _apply(self, fn: Any, recurse: bool = True) -> "AdaptiveEpsilon":
        """Follow the module to another device, but keep float64: ``.half()`` must not round epsilon."""
        kept = self.value
        super()._apply(fn, recurse)
        self.value = kept.to(self.value.device)
        return self

    def update(self, difference: bool | Tensor, positive_loss: bool | Tensor) -> None:
        """Tell the rule whether the last step gave any difference, and whether any loss was left to lower."""
        difference, positive = (torch.as_tensor(fact, device=self.value.device) for fact in (difference, positive_loss))
        grown = (self.value * self.growth).clamp(-self.limit, self.limit)
        kept = torch.full_like(self.value, self.start) if self.reset else self.value
        self.value.copy_(torch.where(difference, kept, torch.where(positive, grown, self.value)))

    def extra_repr(self) -> str:
        value = f"{float(self):g}" if self.value.numel() == 1 else str(self.value.tolist())
        return f"{value}, growth={self.growth:g}, limit={self.limit:g}, reset={self.reset}"
