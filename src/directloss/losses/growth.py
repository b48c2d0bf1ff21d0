"""The paper's rule for epsilon (supplement C)."""

import torch
from torch import Tensor

from directloss.losses.epsilon import check_epsilon
from directloss.losses.policy import Policy


class GrowingEpsilon(Policy):
    """The paper's rule: epsilon grows when no instance gives a difference although the loss is positive.

    Args:
        start: first value; its sign is kept.
        growth: factor of each step.
        limit: largest magnitude, by default 100 times that of ``start`` (without one, epsilon runs away on costs
            that the solver can always satisfy).
        reset: go back to ``start`` as soon as some instance gives a difference again.
        shape: of independent epsilons, for models that are trained side by side; () is one.
    """

    def __init__(
        self,
        start: float,
        growth: float = 1.1,
        limit: float | None = None,
        reset: bool = False,
        shape: tuple[int, ...] = (),
    ):
        super().__init__(torch.full(shape, check_epsilon(start), dtype=torch.float64, device="cpu"))
        self.start = check_epsilon(start)
        if not growth > 1:
            raise ValueError(f"growth is {growth}, expected a factor above 1")
        self.growth = growth
        self.limit = 100 * abs(self.start) if limit is None else abs(limit)
        if not self.limit >= abs(self.start):
            raise ValueError(f"limit is {limit}, below the starting magnitude {abs(self.start)}")
        self.reset = reset

    def __float__(self) -> float:
        return float(self.value)

    def update(self, difference: bool | Tensor, positive_loss: bool | Tensor) -> None:
        """Tell the rule whether the last step gave any difference, and whether any loss was left to lower."""
        difference, positive = (torch.as_tensor(fact, device=self.value.device) for fact in (difference, positive_loss))
        grown = (self.value * self.growth).clamp(-self.limit, self.limit)
        kept = torch.full_like(self.value, self.start) if self.reset else self.value
        self.value.copy_(torch.where(difference, kept, torch.where(positive, grown, self.value)))

    def extra_repr(self) -> str:
        value = f"{float(self):g}" if self.value.numel() == 1 else str(self.value.tolist())
        return f"{value}, growth={self.growth:g}, limit={self.limit:g}, reset={self.reset}"
