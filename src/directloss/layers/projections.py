"""The closest points of two polytopes: of subsets, and of square matchings. What is on the border is found without
gradients; on the face that this leaves, the solution is linear in the scores, and differentiable as such."""

from typing import Any

import torch
from torch import Tensor

from directloss import threads
from directloss.later import later
from directloss.layers.active_set import ActiveSet
from directloss.losses.solving import Tensors, batched
from directloss.structures.arrays import instances
from directloss.structures.base import Structure
from directloss.structures.choice import Choice
from directloss.structures.matching import Matching
from directloss.structures.subset import Subset

_kernels = later("directloss.layers.birkhoff_kernel")
_LEAST_WORK = 64_000  # matrices times n^3, for another thread


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


def doubly_stochastic(theta: Tensor) -> Tensor:
    """``max(0, theta + u + v)`` with rows and columns that sum to one."""
    (y,) = batched(_closest, Matching(), (theta.shape[-2:],), (theta,))
    found: Tensor = _OnFace.apply(theta, y, y)
    return found


class _OnFace(torch.autograd.Function):
    """A value that changes with x as the projection onto a face does, which is its own derivative.

    The face has the matrices whose rows and columns sum to zero and which are zero wherever y is.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, value: Tensor, y: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _OnFace.project(grads[0], *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        return None if tangents[0] is None else _OnFace.project(tangents[0], *ctx.saved_tensors)

    @staticmethod
    def project(x: Tensor, y: Tensor) -> Tensor:
        (value,) = batched(_onto_face, Matching(), (y.shape[-2:],) * 2, (x, y))
        found: Tensor = _OnFace.apply(x, value, y)
        return found


def _closest(structure: Structure, parts: Tensors, entries: tuple[torch.Size, ...]) -> Tensors:
    """The closest doubly stochastic matrices."""
    project = _kernels().project
    (theta,) = parts
    y = torch.empty(theta.shape, dtype=torch.float64)
    matrices, out = instances(theta, 2), y.view(-1, *entries[0]).numpy()
    least = 1 + _LEAST_WORK // entries[0][0] ** 3
    failed = threads.split(lambda first, last: int(project(matrices, out, first, last)), len(matrices), least)
    if not sum(failed):
        return (y.to(theta.device),)
    # Scores so large, or so tied, that Newton's method rounds: the slower way has no such trouble.
    search = ActiveSet()
    active, *tensors = search(structure, parts, entries)
    (vertices,) = search.layout.unpack(tensors)
    face = (vertices.dense(torch.float64) * active[..., None, None]).sum(active.dim() - 1)
    return _onto_face(structure, (theta, face), entries, wanted=1.0)


def _onto_face(structure: Structure, parts: Tensors, entries: tuple[torch.Size, ...], wanted: float = 0.0) -> Tensors:
    """The closest matrices to the first part which are zero where the second is, with such sums of rows and columns."""
    x, y = parts
    moved, face = instances(x.double(), 2).copy(), instances(y.double().expand(x.shape), 2)
    _kernels().project_onto_face(moved, face, wanted, 0, len(moved))
    return (torch.from_numpy(moved).reshape(x.shape).to(x),)
