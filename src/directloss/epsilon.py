"""How far the loss-augmented maximiser looks."""

import math

import torch
from torch import Tensor, nn


def check_epsilon(epsilon: float) -> float:
    """``epsilon`` as a float, or ValueError where it is no step to take."""
    value = float(epsilon)
    if value == 0 or not math.isfinite(value):
        raise ValueError(
            f"epsilon is {epsilon}; expected a finite number other than 0 (negative pulls towards better structures)"
        )
    return value


class AdaptiveEpsilon(nn.Module):
    """The paper's rule: epsilon grows when no instance gives a difference although the loss is positive.

    The value is a buffer: it is saved and restored with the ``state_dict`` of the criterion that holds it.

    Args:
        start: first value; its sign is kept.
        growth: factor of each step.
        limit: largest magnitude, by default 100 times that of ``start`` (without one, epsilon runs away on costs
            that the solver can always satisfy).
        reset: go back to ``start`` as soon as some instance gives a difference again.
    """

    value: Tensor

    def __init__(self, start: float, growth: float = 1.1, limit: float | None = None, reset: bool = False):
        super().__init__()
        self.start = check_epsilon(start)
        if not growth > 1:
            raise ValueError(f"growth is {growth}, expected a factor above 1")
        self.growth = growth
        self.limit = 100 * abs(self.start) if limit is None else abs(limit)
        if not self.limit >= abs(self.start):
            raise ValueError(f"limit is {limit}, below the starting magnitude {abs(self.start)}")
        self.reset = reset
        self.register_buffer("value", torch.tensor(self.start, dtype=torch.float64))

    def __float__(self) -> float:
        return float(self.value)

    def update(self, difference: bool, positive_loss: bool) -> None:
        """Tell the rule whether the last step gave any difference, and whether any loss was left to lower."""
        if difference:
            if self.reset:
                self.value.fill_(self.start)
        elif positive_loss:
            self.value.mul_(self.growth).clamp_(-self.limit, self.limit)

    def extra_repr(self) -> str:
        return f"{float(self):g}, growth={self.growth:g}, limit={self.limit:g}, reset={self.reset}"
