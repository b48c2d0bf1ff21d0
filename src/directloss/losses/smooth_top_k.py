"""The smooth top-k loss (Berrada, Zisserman & Kumar 2018): is the label among the k best scores?

The top-k hinge compares the k-subsets Y of the labels, at a margin, with those that have the label y. Smoothed by a
temperature t, with d(Y) = margin unless y is in Y,

    loss = t log sum_Y exp((d(Y) + mean_{j in Y} s_j) / t) - t log sum_{Y with y} exp(mean_{j in Y} s_j / t).

Let ``e_j = exp(s_j / (k t))``. Sums over subsets are elementary symmetric polynomials E_k of the e_j other than e_y:

    loss = t log(1 + exp(margin / t) E_k / (e_y E_(k-1))).

They are the coefficients of ``prod_j (1 + e_j x)``, multiplied out as a balanced tree, in logarithms: every term is
positive, so that nothing cancels. For k = 1, margin 0 and t = 1 it is the cross-entropy; towards t = 0 the hinge.
"""

from typing import Any

import torch
from torch import Tensor

from directloss.layers.checks import fitting, over_temperature
from directloss.losses.problem import Problem, wide
from directloss.losses.reduction import Reduction
from directloss.parts import as_parts, broadcasts
from directloss.structures.base import Structure
from directloss.structures.choice import Choice
from directloss.structures.partition import log_sum_of_subsets, never, only
from directloss.structures.subset import Subset
from directloss.transforms import inside_transform


def smooth_top_k(
    scores: Tensor,
    target: Tensor,
    structure: Structure,
    *,
    temperature: float = 1.0,
    margin: float = 1.0,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """The top-k hinge, smoothed: near 0 where the target label is among the k best scores by a margin. No solve.

    Args:
        scores: (B..., n), from your network.
        target: the right label, as a choice (one 1 among zeros); broadcasts to (B..., n).
        structure: ``Subset(k)``, k a number, with a mask or without; or ``Choice``, for k = 1.
        temperature: towards 0 the hinge, whose gradient is sparse.
        margin: of the hinge, in units of ``score / k``.
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the k best, (B..., n).

    Example:
        >>> import torch, directloss as dl
        >>> label = torch.nn.functional.one_hot(torch.tensor([0]), 4)
        >>> scores = torch.tensor([[2.0, 3.0, 1.0, -1.0]])
        >>> for k in (1, 2):
        ...     dl.smooth_top_k(scores, label, dl.Subset(k), temperature=0.01)
        tensor(2.)
        tensor(0.5000)
    """
    fitting("smooth_top_k", structure, Subset, Choice, does="does not count the labels of")
    if isinstance(structure, Subset) and structure.counts is not None:
        raise TypeError("smooth_top_k takes Subset(k) with one k for all instances")
    assert isinstance(structure, Subset | Choice)
    k, mask = structure.largest if isinstance(structure, Subset) else 1, structure.mask
    problem = Problem.of(scores, structure, reduction)
    (first,) = as_parts(scores)  # no decision is in the way of further derivatives
    label = _label(target, mask, first)
    logits = over_temperature(wide(first), k * temperature)
    logits = only(logits, mask)
    symmetric = log_sum_of_subsets(logits.scatter(-1, label, never(logits.dtype)), k)
    ratio = symmetric[..., k] - symmetric[..., k - 1] - logits.gather(-1, label).squeeze(-1)
    value = temperature * torch.logaddexp(torch.zeros_like(ratio), ratio + margin / temperature)
    loss = problem.reduced(value, reduction)
    return (loss, problem.dense(problem.solve(problem.parts)[0])) if return_structure else loss


def _label(target: Tensor, mask: Tensor | None, scores: Tensor) -> Tensor:
    """Which entry is the label, (B..., 1)."""
    if not isinstance(target, Tensor) or not broadcasts(target.shape, scores.shape):
        got = f"shape {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target: got {got}, expected one 1 for each instance, shaped like the scores {scores.shape}")
    if not inside_transform():
        right = ((target == 0) | (target == 1)).all(-1) & (target.sum(-1) == 1)
        if mask is not None:
            right = right & ((target != 0) & mask).any(-1)
        if not right.all():
            raise ValueError(
                "target is not one label that the structure allows: expected one 1 among zeros, which "
                "torch.nn.functional.one_hot makes of label numbers"
            )
    return target.argmax(-1, keepdim=True).expand(*scores.shape[:-1], 1)
