"""SPO+ (Elmachtoub & Grigas 2022, "Smart predict, then optimize"): a convex bound on the regret of a decision.

They predict costs c' of a decision that minimises ``<c, y>``, with y* the best for the true cost c:

    SPO+(c', c) = max_y <c - 2 c', y> + 2 <c', y*> - <c, y*>,   with the gradient 2 (y* - y(2 c' - c)) in c'.

Our structures maximise, so that scores s are predicted costs with their sign turned, ``c' = -s``:

    loss = max_y <2 s + c, y> - <2 s + c, y*>,                  with the gradient 2 (y_(2 s + c) - y*) in s,

where y_(t) maximises ``<t, y>``. That is twice the structured hinge with half the cost: never negative, and at least
the regret ``<c, y> - <c, y*>`` of the prediction y. With scores that are the true costs, ``s = -c``, it is 0.
"""

import math
from typing import Any

from torch import Tensor

from directloss.losses.hinge import hinge
from directloss.losses.reduction import Reduction
from directloss.parts import Scores
from directloss.structures.base import Structure


def spo_plus(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    *,
    target: Tensor | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """``max_y <2 scores + cost, y> - <2 scores + cost, y*>``, y* being the best structure for the cost. Two solves.

    Scores are in the units of the cost, with its sign turned: the loss is 0 at ``scores = -cost``.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: the true cost of each entry, broadcasting to the scores.
        structure: what is predicted; any.
        target: y*, where it is known, as its first part (B..., *E): one solve less.
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return what the scores predict, (B..., *E), which is one more solve.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[-3.0, -2.0]], requires_grad=True)  # predicted costs 3 and 2
        >>> loss = dl.spo_plus(scores, torch.tensor([[1.0, 4.0]]), dl.Choice())
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (5.0, tensor([[-2.,  2.]]))
    """
    return hinge(scores, cost, structure, 0.5, math.inf, target, reduction, return_structure, times=2.0)
