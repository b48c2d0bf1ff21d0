"""Margin rescaling, and what it becomes as the weights of the cost on its two sides change.

With y* the structure of the smallest cost, the regret ``d(y) = <cost, y> - <cost, y*>`` and scores s,

    loss = max_y [<s, y> + fear * d(y)] - max_y [<s, y> - hope * d(y)],

whose maximisers, the structure to fear and the one to hope for, give the gradient ``y_fear - y_hope``. The loss is
never negative, and

    fear = 1, hope = inf    is the structured hinge (Taskar et al. 2003, Tsochantaridis et al. 2005), the second maximum
                            being <s, y*>: it is at least the regret of the prediction;
    fear = 0, hope = inf    the structured perceptron (Collins 2002);
    fear = 1, hope = 0      the ramp loss (Do et al. 2008), at least the regret too;
    fear = 0, hope = 1      its other half: at least the regret of the structure that is hoped for;
    fear = 1, hope = 1      hope and fear (Chiang 2012).

Divided by fear, the ramp loss has the gradient of ``direct_loss`` at epsilon = fear; with hope = fear, divided by
2 fear, that of its two-sided rule.
"""

import math
from typing import Any

from torch import Tensor

from directloss.dtypes import to_dtype
from directloss.losses.problem import Problem, gap, inner
from directloss.losses.reduction import Reduction, reduce
from directloss.parts import Scores
from directloss.structures.base import Structure


def structured_hinge(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    *,
    fear: float = 1.0,
    hope: float = math.inf,
    target: Tensor | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """``max_y [<scores, y> + fear d(y)] - max_y [<scores, y> - hope d(y)]``, d the regret. Two or three solves.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: linear coefficients of the task loss, broadcasting to the scores.
        structure: what is predicted; any.
        fear: weight of the cost in the first maximum; 0 is the perceptron.
        hope: weight of the cost in the second; infinity takes y* itself, 0 is the ramp loss.
        target: y*, where it is known, as its first part (B..., *E); otherwise the structure of the smallest cost is
            solved for, and of several it is any.
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return what the scores predict, (B..., *E), which is one more solve.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.5, 0.0, -1.0]], requires_grad=True)
        >>> loss = dl.structured_hinge(scores, torch.tensor([[0.0, 1.0, 1.0]]), dl.Choice())
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (0.5, tensor([[-1.,  1.,  0.]]))
    """
    if not (0 <= fear < math.inf and hope >= 0 and fear + hope > 0):
        raise ValueError(
            f"fear is {fear} and hope is {hope}; expected numbers >= 0, not both 0, of which hope may be infinite"
        )
    return hinge(scores, cost, structure, fear, hope, target, reduction, return_structure)


def hinge(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    fear: float,
    hope: float,
    target: Tensor | None,
    reduction: Reduction,
    return_structure: bool,
    times: float = 1.0,
) -> Any:
    """The loss of ``structured_hinge``, multiplied."""
    problem = Problem.of(scores, structure, reduction)
    cost = problem.linear(cost, "structured_hinge")
    best = problem.best(cost) if target is None else problem.complete(target)
    steps = [fear, *([] if hope == math.inf else [-hope]), *([0.0] if return_structure else [])]
    feared, *others = problem.solve(problem.parts, cost, steps)
    other = best if hope == math.inf else others[0]
    loss = gap(feared, other, problem.parts, cost=cost, step=fear, times=times, reduction=reduction)
    if hope < math.inf:
        regret = inner(other[:1], (cost,)) - inner(best[:1], (cost,))
        loss = loss + times * (fear + hope) * reduce(regret, reduction)
    loss = to_dtype(loss, problem.parts[0].dtype)
    return (loss, problem.dense(others[-1])) if return_structure else loss
