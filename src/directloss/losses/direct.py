"""Direct loss minimisation through randomly perturbed structured predictors: the paper.

For scores ``mu``, scale ``sigma``, noise ``gamma`` and a task loss that is linear in the structure,
``loss(y) = const + <cost, y>``, let

    theta = mu + sigma * gamma
    y     = argmax_y <theta, y>
    y_eps = argmax_y <theta + eps * cost, y>            on the same noise.

Then (corollary 2)

    d E[loss(y)] / d theta = lim_{eps -> 0} E[(y_eps - y) / eps],

and the chain rule carries it to the scores (equation 16: times d theta / d mu = 1) and to the scale (equation 17: times
d theta / d sigma = gamma). ``sigma = 0`` is direct loss minimisation (McAllester et al. 2010), ``sigma = 1`` is
Lorberbom et al. 2018, a learned ``sigma`` is Direct Stochastic Learning. ``sides="both"`` is the central difference
``(y_{+eps} - y_{-eps}) / (2 eps)`` of the same derivative, with a bias of second order in eps.

A task loss that is not linear is taken at y: its gradient there is the cost, or the user's own loss-augmented maximiser
returns y_eps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from directloss.dtypes import to_dtype, wide_dtype
from directloss.layout import Layout
from directloss.losses.autograd import Attach, AttachInTransform
from directloss.losses.epsilon import Epsilon, fit_epsilon
from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.losses.sampling import sampled, scale_and_noise
from directloss.losses.task import Augmented, Cost, check_function, solve_task
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, Vertices, as_parts, fit_cost
from directloss.perturbation import Scale
from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_transform

Sides = Literal["one", "both"]


def check_sides(sides: str) -> None:
    """Raise ValueError unless it is one of the two."""
    if sides not in ("one", "both"):
        raise ValueError(f"sides is {sides!r}, expected 'one' (the paper's rule) or 'both' (central difference)")


class Found(NamedTuple):
    """The loss, (B...) or reduced, and the vertices (T, S, B..., K) of each part, which a gradient is made of."""

    loss: Tensor
    vertices: tuple[Vertices, ...]


@dataclass
class Rule:
    """What a call does besides its tensors."""

    structure: Structure
    steps: tuple[float, ...]  # of y, of the solution ahead and, with both sides, of the one behind
    width: float  # between the two ends of the difference, in units of epsilon where that is a tensor
    entries: tuple[torch.Size, ...]  # of each part of the scores
    learns_scale: bool
    count: int | None = None  # what the sum of the losses of all instances is divided by; None if each has its own
    layout: Layout | None = None  # of the vertices, once they are known

    @property
    def parts(self) -> int:
        """How many tensors the scores are."""
        return len(self.entries)

    def solve(self, theta: tuple[Tensor, ...], cost: Tensor, epsilon: Tensor | None) -> Found:
        """y and the solutions ahead and behind on the same noise, and the loss of y."""
        along = cost
        if epsilon is not None:
            along = (cost * epsilon[(..., *[None] * self.structure.entry_dims)]).to(wide_dtype(cost.dtype))
        vertices = self.structure.maximize(theta, self.entries, along, self.steps)
        loss = vertices[0].average(cost, self.count)
        return Found(to_dtype(loss, theta[0].dtype), vertices)

    def gradients(
        self,
        grad: Tensor,
        vertices: tuple[Vertices, ...],
        drawn: Tensor | None,
        epsilon: Tensor | None,
        parts: Sequence[tuple[torch.Size, torch.dtype]],
        scale_shape: torch.Size,
    ) -> list[Tensor | None]:
        """Equations 16 and 17: ``(y_ahead - y_behind) / width`` for each part, and times the noise for the scale.

        ``grad`` is that of the loss of an instance, (B...), or of their mean or sum, ().
        """
        dtype = wide_dtype(grad.dtype) if epsilon is None else torch.float64
        count, factor = vertices[0].slots.shape[1] * (self.count or 1), 1 / abs(self.width)
        each = None  # what multiplies the differences of an instance, (B...), besides the factor
        if epsilon is None and not grad.dim() and grad.is_cpu and not inside_transform():
            factor *= grad.item() / count
        else:
            # Where 1 / epsilon overflows the scores' dtype it comes last: what has no difference has no gradient.
            safe = factor <= torch.finfo(dtype).max
            each = grad.to(dtype) * ((factor if safe else 1) / count)
            each, factor = each if epsilon is None else each / epsilon, 1.0 if safe else factor
        per_slot = None if each is None else (each.unsqueeze(-1),) * 2

        (shape, kept), first = parts[0], vertices[0]
        total = first.difference(self.ends, shape, dtype, factor=factor)
        if each is not None:
            total = total * each[(..., *[None] * self.structure.entry_dims)]
        gradients: list[Tensor | None] = [None, to_dtype(total, kept)]
        # A factor, or the scale, may be shared by instances whose gradients differ.
        for v, (own, to) in zip(vertices[1:], parts[1:], strict=True):
            gradients.append(v.difference(self.ends, own, dtype, per_slot, factor).to(to))
        if drawn is not None:
            differs = first.select(self.ends[0]).unequal(first.select(self.ends[1]))
            ahead, behind = drawn.to(dtype) * (differs if per_slot is None else differs * per_slot[0])
            gradients[0] = first.difference(self.ends, scale_shape, dtype, (ahead, behind), factor).to(kept)
        return gradients

    @property
    def ends(self) -> tuple[int, int]:
        """The steps between which the difference is formed: from the one with the smaller epsilon to the other."""
        ahead, behind = (1, 2) if len(self.steps) == 3 else (1, 0)
        return (ahead, behind) if self.width > 0 else (behind, ahead)

    def drawn(self, vertices: tuple[Vertices, ...], noise: Tensor | None) -> list[Tensor]:
        """The noise where the solutions ahead and behind are not zero, (2, S, B..., K), if the scale learns from it."""
        if not self.learns_scale or noise is None:
            return []
        return [torch.stack([vertices[0].select(end).at(noise) for end in self.ends])]


class DirectOutput(NamedTuple):
    """Everything one evaluation of the rule gives."""

    loss: Tensor  # (B...) or (), differentiable
    # Of each part, (T, S, B..., K): y and, where a gradient is wanted, the solutions ahead and behind.
    vertices: tuple[Vertices, ...]

    def returned(self, scores: Scores) -> tuple[Tensor, Tensor]:
        """The loss, and the structures predicted under the noise, (S, B..., *E)."""
        return self.loss, self.vertices[0].select(0).dense(as_parts(scores)[0].dtype)

    def informative(self) -> Tensor:
        """Whether some sample gives a difference, (B...)."""
        first = self.vertices[0]
        steps = len(first.slots)
        return first.select(min(1, steps - 1)).differs(first.select(2 if steps == 3 else 0)).any(0)


def evaluate_direct(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: Epsilon,
    sides: Sides = "one",
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    augmented: Augmented | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
    divide: bool = True,
) -> DirectOutput:
    """The rule itself, with what diagnostics need. ``direct_loss`` and ``DirectLoss`` are made of it.

    Without ``divide`` the difference is not divided by its width, so that the gradient has no unit.
    """
    check_structure_type(structure)
    check_reduction(reduction)
    check_sides(sides)
    parts = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(parts)
    structure, first = structure.for_batch(len(batch)), parts[0]
    (behind, ahead), each = fit_epsilon(epsilon, sides == "one", batch, first.device)
    steps: tuple[float, ...] = (0.0, ahead, behind) if behind else (0.0, ahead)
    width = ahead - behind if divide else math.copysign(1.0, ahead - behind)
    drawing = (scale, noise, samples, first, structure, generator)
    task = fit_cost(cost, first) if isinstance(cost, Tensor) else check_function(cost)
    if augmented is not None and isinstance(task, Tensor):
        raise ValueError("augmented goes with a cost that is a function; coefficients need no other maximiser")
    if inside_transform():
        sigma, gamma = scale_and_noise(*drawing)
        rule = Rule(structure, steps, width, entries, sigma is not None)
        inputs = (sigma, gamma, task, each, *parts, *structure.tensors())
        loss, *tensors = AttachInTransform.apply(rule, *inputs)
        assert rule.layout is not None
        return DirectOutput(reduce(loss, reduction), rule.layout.unpack(tensors))
    noisy, sigma, gamma = sampled(*drawing)
    theta = (noisy, *[factor.detach() for factor in parts[1:]])
    learns_scale = sigma is not None and sigma.requires_grad
    if not torch.is_grad_enabled() or not (learns_scale or [part for part in parts if part.requires_grad]):
        steps = (0.0,)
    count = None if reduction == "none" else batch.numel() if reduction == "mean" else 1
    rule = Rule(structure, steps, width, entries, learns_scale, count)
    if isinstance(task, Tensor):
        found = rule.solve(theta, task, each)
    else:
        losses, vertices = solve_task(task, augmented, structure, theta, steps, each)
        found = Found(reduce(losses, reduction), vertices)
    if len(steps) == 1:
        return DirectOutput(*found)
    return DirectOutput(Attach.apply((rule, found, gamma, each), sigma, *parts), found.vertices)


_evaluate_uncompiled = torch.compiler.disable(evaluate_direct)


def direct_loss(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: Epsilon,
    sides: Sides = "one",
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    augmented: Augmented | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """The expected task loss ``E[<cost, y>]`` of a randomly perturbed structured predictor, differentiable.

    Where no gradient is wanted the structure is solved for once, otherwise two or three times.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: linear coefficients of the task loss, broadcasting to the scores (``dl.costs`` makes them); or a function
            of structures (B..., *E) to losses (B...), which is linearised at y.
        structure: what is predicted.
        epsilon: how far the augmented maximiser looks; not 0; a number, or one for each instance (B...). Negative pulls
            towards better structures, positive pushes away from worse ones. A pair ``(behind, ahead)``, behind < 0 <
            ahead, looks to each side by its own number.
        sides: "one" is the paper's rule, "both" the central difference.
        scale: of the noise: a number, one for each instance (B...), or one for each entry. 0 draws no noise.
        noise: what is drawn, or the draws themselves, (samples, B..., *E), to share them between calls.
        samples: draws for each instance (with given draws, leave it out).
        augmented: for a cost that is a function and carries no gradient: ``augmented(theta, epsilon)`` returns the
            maximiser of ``<theta, y> + epsilon * cost(y)``, for both signs of epsilon.
        generator: the only source of randomness (None: torch's default generator).
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the structures predicted under the noise, (samples, B..., *E).

    Returns:
        The loss; its gradient reaches every part of ``scores`` and a ``scale`` that requires one.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.0, 2.0, 1.0]], requires_grad=True)
        >>> loss = dl.direct_loss(scores, torch.tensor([[1.0, 1.0, 0.0]]), dl.Choice(), epsilon=-2.0)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (1.0, tensor([[ 0.0000,  0.5000, -0.5000]]))
    """
    evaluate = _evaluate_uncompiled if torch.compiler.is_compiling() else evaluate_direct
    output = evaluate(
        scores,
        cost,
        structure,
        epsilon=epsilon,
        sides=sides,
        scale=scale,
        noise=noise,
        samples=samples,
        augmented=augmented,
        generator=generator,
        reduction=reduction,
    )
    return output.returned(scores) if return_structure else output.loss
