"""An epsilon for a batch of one's own scores and costs."""

import math
import operator
from typing import Literal

import torch
from torch import Tensor

from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import Scale, check_scale, draw, fit_scale
from directloss.structures.base import Structure, check_structure_type

# A search for epsilon goes out by this factor, and down so many times: beyond what float64 can tell apart.
_STRIDE = 1e3
_LONGEST_SEARCH = 10
# Epsilon is found to so much: finer would not matter.
_PRECISION = 1.001


class Suggestion(float):
    """An epsilon, with what finding it took."""

    solves: int  # of the whole batch
    share: float  # of the way that it moves the loss

    def __new__(cls, value: float, solves: int, share: float) -> "Suggestion":
        found = super().__new__(cls, value)
        found.solves, found.share = solves, share
        return found


@torch.no_grad()
def suggest_epsilon(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    *,
    sides: Literal["one", "both"] = "both",
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    share: float = 0.5,
    budget: int | None = None,
    generator: torch.Generator | None = None,
) -> Suggestion:
    """The epsilon that moves the loss half of the way, on a batch of your own scores and costs.

    With both sides it is the epsilon at which the losses of ``y_{+eps}`` and ``y_{-eps}`` are ``share`` as far apart as
    those of the worst and the best structure; with one side, the (negative) one at which ``y_eps`` has closed
    ``share`` of the gap between the loss of y and the smallest. Far below it most instances give no gradient, far above
    it the maximisers follow the cost alone and no longer depend on the scores.

    ``budget`` bounds how often the batch is solved (None: until epsilon is found to a thousandth, some 60 times); the
    result is a float that also says ``.solves``, what was spent, and ``.share``, how far it moves the loss.

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
    check_structure_type(structure)
    if budget is not None and operator.index(budget) < 6:
        raise ValueError(
            f"budget is {budget}, expected at least 6 solves: 4 to know the whole way, 2 for a first epsilon"
        )
    parts = structure.expanded(as_parts(scores))
    batch = structure.batch_shape(parts)
    structure = structure.for_batch(len(batch))
    first, *factors = parts
    cost = fit_cost(cost, first)
    factor = fit_scale(scale, first, batch)
    check_scale(factor)
    noiseless = not isinstance(scale, Tensor) and scale == 0
    theta = (first if noiseless else first + factor * draw(noise, 1, first, generator)[0], *factors)
    solves = 0

    def losses(along: tuple[Tensor, ...], *steps: float) -> list[float]:
        nonlocal solves
        solves += len(steps)
        values = structure.vertices_along(along, cost, steps)[0].inner(cost)
        return values.reshape(len(steps), -1).sum(1, dtype=torch.float64).tolist()

    worst, best = losses(tuple(torch.zeros_like(part) for part in theta), 1.0, -1.0)
    (here,) = losses(theta, 0.0)
    whole = (worst if sides == "both" else here) - best
    if not whole > 1e-9 * (abs(worst) + abs(best)):
        why = "every structure has the same loss" if sides == "both" else "every instance has its smallest loss already"
        raise ValueError(f"{why}: no epsilon can be suggested from this batch")

    def moved(epsilon: float) -> float:
        if sides == "both":
            ahead, behind = losses(theta, epsilon, -epsilon)
            return (ahead - behind) / whole
        return (here - losses(theta, -epsilon)[0]) / whole

    def affordable() -> bool:
        return budget is None or solves + (2 if sides == "both" else 1) <= budget

    # The share grows with epsilon. Start where cost and scores have the same size, and go out until it is crossed.
    low = high = max(part.abs().max().item() for part in theta) / cost.abs().max().item() or 1.0
    at_high = moved(high)
    while at_high < share and affordable():
        low, high = high, high * _STRIDE
        at_high = moved(high)
    if low == high:
        for _ in range(_LONGEST_SEARCH):
            if not affordable():
                break
            low /= _STRIDE
            at_low = moved(low)
            if at_low < share:
                break
            high, at_high = low, at_low
        else:
            raise ValueError("the scores tie, so that any epsilon decides: warm the network up before asking for one")
    while high / low > _PRECISION and affordable():
        middle = math.sqrt(low * high)
        at_middle = moved(middle)
        if at_middle < share:
            low = middle
        else:
            high, at_high = middle, at_middle
    return Suggestion(high if sides == "both" else -high, solves, at_high)
