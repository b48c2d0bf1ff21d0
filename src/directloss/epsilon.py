"""How far the loss-augmented maximiser looks."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from directloss.noise import Gumbel, Noise, draw
from directloss.shapes import check_scale, fit_cost, fit_scale
from directloss.structures import Structure

# A search for epsilon goes out by this factor, and down so many times: beyond what float64 can tell apart.
_STRIDE = 1e3
_LONGEST_SEARCH = 10


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


@torch.no_grad()
def suggest_epsilon(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    sides: Literal["one", "both"] = "both",
    scale: float | Tensor = 0.0,
    noise: Noise | Tensor = Gumbel(),
    share: float = 0.5,
    generator: torch.Generator | None = None,
) -> float:
    """The epsilon that moves the loss half of the way, on a batch of your own scores and costs.

    With both sides it is the epsilon at which the losses of ``y_{+eps}`` and ``y_{-eps}`` are ``share`` as far apart as
    those of the worst and the best structure; with one side, the (negative) one at which ``y_eps`` has closed
    ``share`` of the gap between the loss of y and the smallest. Far below it most instances give no gradient, far above
    it the maximisers follow the cost alone and no longer depend on the scores.

    Call it on scores of the size that training gives them: after some warm-up steps, not at initialisation.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 4.0, 1.0]])
        >>> f"{dl.suggest_epsilon(scores, torch.tensor([0.0, 0.5, 1.0]), dl.Choice()):.2f}"
        '2.00'
    """
    if sides not in ("one", "both"):
        raise ValueError(f"sides is {sides!r}, expected 'one' or 'both'")
    if not 0 < share < 1:
        raise ValueError(f"share is {share}, expected a number between 0 and 1")
    structure.solve(scores)  # for its checks
    cost = fit_cost(cost, scores)
    factor = fit_scale(scale, scores, structure.batch_shape(scores))
    check_scale(factor)
    still = not isinstance(scale, Tensor) and scale == 0
    theta = scores if still else scores + factor * draw(noise, 1, scores, generator)[0]

    def losses(along: Tensor, *steps: float) -> Tensor:
        return (structure.solve_along(along, cost, steps) * cost).flatten(1).sum(1, dtype=torch.float64)

    worst, best = losses(torch.zeros_like(theta), 1.0, -1.0)
    here = losses(theta, 0.0)[0]
    whole = (worst if sides == "both" else here) - best
    if not whole > 1e-9 * (abs(worst) + abs(best)):
        why = "every structure has the same loss" if sides == "both" else "every instance has its smallest loss already"
        raise ValueError(f"{why}: no epsilon can be suggested from this batch")

    def moved(epsilon: float) -> float:
        ahead, behind = losses(theta, epsilon, -epsilon)
        return float(((ahead if sides == "both" else here) - behind) / whole)

    # The share grows with epsilon. Start where cost and scores have the same size, and go out until it is crossed.
    low = high = theta.abs().max().item() / cost.abs().max().item() or 1.0
    while moved(high) < share:
        low, high = high, high * _STRIDE
    for _ in range(_LONGEST_SEARCH):
        if moved(low) < share:
            break
        low, high = low / _STRIDE, low
    else:
        raise ValueError("the scores tie, so that any epsilon decides: warm the network up before asking for one")
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if moved(middle) < share else (low, middle)
    return high if sides == "both" else -high
