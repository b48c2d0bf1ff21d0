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
