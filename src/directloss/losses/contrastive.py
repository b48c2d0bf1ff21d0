"""Contrastive losses over a pool of solutions (Mulamba et al. 2021), for solvers that are too slow to train through.

A target y* is told apart from the solutions v of a pool, as under an exponential distribution over solutions whose
normaliser is avoided by the contrast. With scores s (predicted costs with their sign turned):

    "nce":  mean_v <s, v> - <s, y*>     against all of them alike (noise-contrastive estimation),
    "map":  max_v  <s, v> - <s, y*>     against the best of them (maximum a posteriori).

The first is linear in s, and has no minimum unless the network bounds s. With the true cost c, ``s + c`` may stand for
s, as in the paper: "map" over a pool of all structures is then the structured hinge. Neither form estimates the
gradient of the expected loss; each is a function of the scores with its true gradient, for the pool as it is.
"""

from typing import Any, Literal

from torch import Tensor

from directloss.losses.candidates import Candidates
from directloss.losses.reduction import Reduction
from directloss.parts import Scores, fit_cost
from directloss.structures.base import Structure


def contrastive(
    scores: Scores,
    target: Tensor,
    structure: Structure,
    *,
    form: Literal["nce", "map"] = "map",
    cost: Tensor | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """The mean, or the largest, ``<scores, v> - <scores, target>`` of the solutions v that a pool knows.

    The pool solves for its ``solve_share`` of the scores, and keeps what it finds. Tell it of the targets of your data
    first (``pool.add``): "map" is never negative only if the target is known.

    Args:
        scores: (B..., *E), from your network.
        target: the right structure; broadcasts to (B..., *E).
        structure: a ``Pool``, or a ``Finite`` list.
        form: "nce" compares with all solutions, "map" with the best for the scores.
        cost: if given, ``scores + cost`` stands for the scores.
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the known solution that the scores like best, (B..., *E).

    Example:
        >>> import torch, directloss as dl
        >>> pool, target = dl.Pool(dl.Choice()), torch.tensor([[1.0, 0.0, 0.0]])
        >>> pool.add(torch.eye(3))
        >>> scores = torch.tensor([[0.5, 1.0, -1.0]], requires_grad=True)
        >>> loss = dl.contrastive(scores, target, pool)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (0.5, tensor([[-1.,  1.,  0.]]))
    """
    if form not in ("nce", "map"):
        raise ValueError(f"form is {form!r}, expected 'nce' (all solutions) or 'map' (the best)")
    known = Candidates.of("contrastive", scores, structure, reduction)
    (right,) = known.problem.complete(target)
    weights = known.scores if cost is None else known.scores + known.flat(fit_cost(cost, known.problem.parts[0]))
    values = known.values(weights)
    others = values.mean(-1) if form == "nce" else values.amax(-1)
    loss = known.problem.reduced(
        others - (weights * right.dense(weights.dtype).flatten(weights.dim() - 1)).sum(-1), reduction
    )
    return (loss, known.predicted()) if return_structure else loss
