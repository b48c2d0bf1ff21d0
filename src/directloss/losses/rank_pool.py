"""Learning to rank the solutions of a pool (Mandi et al. 2022, "through the lens of learning to rank").

The solutions v of a pool have true costs ``t_v = <cost, v>`` and scores ``p_v = <scores, v>``; predicted costs are
``-p_v``. With b the solution of the pool with the smallest true cost, and v running over those that cost more,

    "pointwise":   mean_v (p_v + t_v)^2                                   over all solutions
    "pairwise":    mean_v max(0, margin + p_v - p_b)
    "difference":  mean_v ((p_b - p_v) - (t_v - t_b))^2
    "listwise":    -sum_v softmax(-t / temperature)_v log softmax(p / temperature)_v    over all solutions.

The paper pairs the best with the rest, as here. None of them estimates the gradient of the expected loss; each is a
function of the scores with its true gradient, for the pool as it is. All but "pairwise" are smallest where scores are
the costs with their sign turned: scores that rank the best first by more than the costs differ are drawn back.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from directloss.layers.checks import over_temperature
from directloss.losses.candidates import Candidates
from directloss.losses.reduction import Reduction
from directloss.parts import Scores
from directloss.structures.base import Structure

Form = Literal["pointwise", "pairwise", "difference", "listwise"]


def rank_pool(
    scores: Scores,
    cost: Tensor,
    structure: Structure,
    *,
    form: Form = "listwise",
    margin: float = 1.0,
    temperature: float = 1.0,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """How well scores rank the solutions that a pool knows, by their true cost.

    The pool solves for its ``solve_share`` of the scores, and keeps what it finds.

    Args:
        scores: (B..., *E), from your network: predicted costs with their sign turned.
        cost: the true cost of each entry, broadcasting to the scores.
        structure: a ``Pool``, or a ``Finite`` list.
        form: "pointwise", "pairwise", "difference" or "listwise".
        margin: by how much a pair's scores must differ ("pairwise" only).
        temperature: of both softmaxes ("listwise" only).
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the known solution that the scores like best, (B..., *E).

    Example:
        >>> import torch, directloss as dl
        >>> pool, cost = dl.Pool(dl.Choice()), torch.tensor([[0.0, 2.0, 1.0]])
        >>> pool.add(torch.eye(3))
        >>> dl.rank_pool(torch.tensor([[0.5, 1.0, -1.0]]), cost, pool, form="pairwise")
        tensor(0.7500)
        >>> dl.rank_pool(-cost, cost, pool, form="pointwise")
        tensor(0.)
    """
    if form not in ("pointwise", "pairwise", "difference", "listwise"):
        raise ValueError(f"form is {form!r}, expected 'pointwise', 'pairwise', 'difference' or 'listwise'")
    known = Candidates.of("rank_pool", scores, structure, reduction)
    true = known.values(known.flat(known.problem.linear(cost, "rank_pool")))
    ours = known.values(known.scores)
    if form == "pointwise":
        value = (ours + true).square().mean(-1)
    elif form == "listwise":
        wanted = over_temperature(-true, temperature).softmax(-1)
        value = -(wanted * over_temperature(ours, temperature).log_softmax(-1)).sum(-1)
    else:
        best = true.argmin(-1, keepdim=True)
        lead, gap = ours.gather(-1, best) - ours, true - true.gather(-1, best)
        terms = torch.relu(margin - lead) if form == "pairwise" else (lead - gap).square()
        worse = gap > 0
        value = (terms * worse).sum(-1) / worse.sum(-1).clamp_min(1)
    loss = known.problem.reduced(value, reduction)
    return (loss, known.predicted()) if return_structure else loss
