"""What a decision costs beyond the best one."""

import torch
from torch import Tensor

from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.parts import Scores, as_parts, fit_cost
from directloss.structures.base import Structure, check_structure_type


@torch.no_grad()
def regret(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    *,
    normalize: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """``<cost, y> - min <cost, .>`` of the decision ``y = argmax <scores, .>``, under the true cost.

    Normalised, it is a share of the best value ``z = min <cost, .>``: of an instance ``regret / |z|``, and over a batch
    ``sum(regret) / sum(|z|)``, as Elmachtoub and Grigas 2022 and PyEPO report it. Without noise, without gradients.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: what is minimised, broadcasting to the scores. If you maximise a value, the cost is minus the value.
        structure: what is decided on.
        normalize: divide by the best value. Not with reduction "sum".
        reduction: "mean" or "sum" over the instances, or "none": (B...).

    Example:
        >>> import torch, directloss as dl
        >>> scores, cost = torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[4.0, 5.0, 6.0]])
        >>> dl.regret(scores, cost, dl.Choice()).item(), dl.regret(scores, cost, dl.Choice(), normalize=True).item()
        (1.0, 0.25)
    """
    check_structure_type(structure)
    check_reduction(reduction)
    if normalize and reduction == "sum":
        raise ValueError("a normalised regret has no sum; take reduction='mean' (the sums' ratio) or 'none'")
    parts = structure.expanded(as_parts(scores))
    coefficients = fit_cost(cost, parts[0])
    taken = _value(structure, parts, coefficients)
    ideal = (-coefficients.expand_as(parts[0]), *(torch.zeros_like(factor) for factor in parts[1:]))
    best = _value(structure, ideal, coefficients)
    lost = taken - best
    if not normalize:
        return reduce(lost, reduction)
    return lost / best.abs() if reduction == "none" else lost.sum() / best.abs().sum()


def _value(structure: Structure, parts: tuple[Tensor, ...], cost: Tensor) -> Tensor:
    """``<cost, y>`` of the best structure for the scores, (B...)."""
    return structure.vertices_along(parts, None, (0.0,))[0].select(0).inner(cost)
