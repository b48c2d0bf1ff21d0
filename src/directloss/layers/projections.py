"""The closest points of two polytopes: of subsets, and of square matchings. What is on the border is found without
gradients; on the face that this leaves, the solution is linear in the scores, and differentiable as such."""

import torch
from torch import Tensor

from directloss import threads
from directloss.layers.active_set import ActiveSet
from directloss.layers.decision import Tensors, batched
from directloss.structures.arrays import instances
from directloss.structures.base import Structure
from directloss.structures.choice import Choice
from directloss.structures.subset import Subset

_LEAST_MATRICES = 8  # for another thread
_RIDGE = 1e-12  # settles the shift of rows against columns, which changes nothing


def capped_simplex(theta: Tensor, structure: Choice | Subset) -> Tensor:
    """``clamp(theta - tau, 0, 1)`` with the tau at which its sum is k: between two of the 2 n values where it bends."""
    k = torch.as_tensor(1 if isinstance(structure, Choice) else structure.wanted, device=theta.device)
    with torch.no_grad():
        fixed = theta.detach()
        if structure.mask is not None:  # lower than tau can be
            lowest = fixed.masked_fill(~structure.mask, torch.inf).amin(-1, keepdim=True)
            fixed = torch.where(structure.mask, fixed, lowest - 2)
        bends, order = torch.cat([fixed, fixed - 1], -1).sort(-1, descending=True)
        rises = torch.where(order < fixed.shape[-1], 1.0, -1.0).to(fixed).cumsum(-1)[..., :-1]
        sums = torch.nn.functional.pad((rises * (bends[..., :-1] - bends[..., 1:])).cumsum(-1), (1, 0))
        at = (sums < k.unsqueeze(-1)).sum(-1, keepdim=True).clamp(1, bends.shape[-1] - 1)
        missing = sums.gather(-1, at) - k.unsqueeze(-1)
        tau = bends.gather(-1, at) + missing / rises.gather(-1, at - 1).clamp_min(1)
        ones, free = fixed - tau >= 1, (fixed > tau) & (fixed - tau < 1)
    total = torch.where(free, theta, 0.0).sum(-1, keepdim=True) + ones.sum(-1, keepdim=True) - k.unsqueeze(-1)
    return torch.where(free, theta - total / free.sum(-1, keepdim=True).clamp_min(1), ones.to(theta))


def doubly_stochastic(theta: Tensor, structure: Structure, entries: tuple[torch.Size, ...]) -> Tensor:
    """``max(0, theta + u + v)`` with rows and columns that sum to one: u and v solve the Laplacian of its graph."""
    (taken,) = batched(_support, structure, entries, (theta,))
    weight, within = taken.to(theta), torch.where(taken, theta, 0.0)
    rows, columns = 1 - within.sum(-1, keepdim=True), 1 - within.sum(-2).unsqueeze(-1)
    # Rows are eliminated: row i has the shift (rows_i - sum_j weight_ij v_j) / degree_i.
    share = weight / weight.sum(-1, keepdim=True)
    schur = torch.diag_embed(weight.sum(-2)) - weight.mT @ share
    factors = torch.linalg.lu_factor(
        schur + _RIDGE * torch.eye(schur.shape[-1], dtype=theta.dtype, device=theta.device)
    )
    right = columns - share.mT @ rows
    v = torch.linalg.lu_solve(*factors, right)
    v = v + torch.linalg.lu_solve(*factors, right - schur @ v)  # for what the ridge leaves, it times the scores
    u = (rows - weight @ v) / weight.sum(-1, keepdim=True)
    return torch.where(taken, theta + u + v.mT, 0.0)


def _support(structure: Structure, parts: Tensors, entries: tuple[torch.Size, ...]) -> Tensors:
    """Where the closest doubly stochastic matrix is not zero."""
    from directloss.layers.birkhoff_kernel import project  # numba takes its time to import

    (theta,) = parts
    y = torch.empty(theta.shape, dtype=torch.float64)
    matrices, out = instances(theta, 2), y.view(-1, *entries[0]).numpy()
    work = threads.split(lambda first, last: int(project(matrices, out, first, last)), len(matrices), _LEAST_MATRICES)
    if not sum(work):
        return ((y > 0).to(theta.device),)
    # Scores so large, or so tied, that Newton's method rounds: the slower way has no such trouble.
    search = ActiveSet()
    active, *tensors = search(structure, parts, entries)
    (vertices,) = search.layout.unpack(tensors)
    return ((vertices.dense(torch.float64) * active[..., None, None]).any(active.dim() - 1),)
