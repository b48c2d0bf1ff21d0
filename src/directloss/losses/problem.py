"""What losses share: checked scores, maximisers that work inside ``torch.func``, and inner products to differentiate.

A loss that is made of maxima is an expression in ``<scores, y>``, with y found by a maximiser and constant from then
on. Autograd knows its gradient: y itself, for every part of the scores and, through ``theta = mu + sigma * gamma``, for
the scale. So a loss is written as its formula, and there is no backward pass to write. Most are a ``gap``, the
difference of two such products.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss.dtypes import to_dtype, wide
from directloss.losses.once import guarded, once
from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.losses.sampling import scale_and_noise
from directloss.losses.solving import Decision, solved
from directloss.noise import Noise
from directloss.parts import Scores, Vertices, as_parts, fit_cost
from directloss.perturbation import Scale, perturbed
from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_transform


class Problem(NamedTuple):
    """Scores and a structure that fit together."""

    structure: Structure
    entries: tuple[torch.Size, ...]
    parts: tuple[Tensor, ...]  # the first with all batch axes

    @classmethod
    def of(cls, scores: Scores, structure: Structure, reduction: Reduction) -> "Problem":
        """Raise TypeError or ValueError unless they fit."""
        check_structure_type(structure)
        check_reduction(reduction)
        parts = structure.expanded(as_parts(scores))
        entries, batch = structure.fit(parts)
        return cls(structure.for_batch(len(batch)), entries, parts)

    def guarded(self) -> "Problem":
        """The same problem for an expression of its own in the parts: a second derivative through them raises."""
        return self._replace(parts=guarded(*self.parts))

    @property
    def batch(self) -> torch.Size:
        return self.parts[0].shape[: self.parts[0].dim() - self.structure.entry_dims]

    def solve(
        self, parts: Sequence[Tensor], cost: Tensor | None = None, steps: Sequence[float] = (0.0,)
    ) -> list[Decision]:
        """The maximisers of ``parts + step * cost`` for each step. ``parts`` may have further leading axes."""
        return solved(self.structure, self.entries, [part.detach() for part in parts], cost, steps)

    def best(self, cost: Tensor) -> Decision:
        """The structures with the smallest ``<cost, y>``."""
        first, *factors = self.parts
        return self.solve((-cost.expand_as(first), *(torch.zeros_like(factor) for factor in factors)))[0]

    def complete(self, target: Tensor) -> Decision:
        """The structures whose first part is the target."""
        return self.structure.complete(target, self.parts)

    def linear(self, cost: Tensor | Callable[..., Any], rule: str) -> Tensor:
        """The coefficients of the task loss. Raise TypeError, naming the rules that take a function, if it is one."""
        if callable(cost) and not isinstance(cost, Tensor):
            raise TypeError(
                f"{rule} takes the linear coefficients of a task loss as its cost, not a function; dl.direct_loss and "
                "dl.reinforce take functions"
            )
        return fit_cost(cost, self.parts[0])

    def perturbed(
        self, scale: Scale, noise: Noise | Tensor, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor | None, Tensor | None, tuple[Tensor, ...]]:
        """sigma and gamma, None without noise, and the parts with theta (S, B..., *E) for the first."""
        first, *factors = self.parts
        sigma, gamma = scale_and_noise(scale, noise, samples, first, self.structure, generator)
        if sigma is not None:
            (sigma,) = guarded(sigma)
        return sigma, gamma, (perturbed(first, sigma, gamma), *factors)

    def reduced(self, value: Tensor, reduction: Reduction) -> Tensor:
        """The value (B...) in the dtype of the scores, or its mean or sum."""
        return reduce(to_dtype(value, self.parts[0].dtype), reduction)

    def dense(self, decision: Decision) -> Tensor:
        """The first part of a decision, (..., *E)."""
        return decision[0].dense(self.parts[0].dtype)


def inner(decision: Sequence[Vertices], parts: Sequence[Tensor]) -> Tensor:
    """``<parts, y>`` over all parts, (...). Differentiable in the parts; in float32 at least."""
    total, *terms = [v.inner(wide(part)) for v, part in zip(decision, parts, strict=True)]
    for term in terms:
        total = total + term
    return total


class _Gap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, known: "_Known", *parts: Tensor) -> Tensor:
        (ahead, *others), (behind, *rest) = known.ahead, known.behind
        weights, *factors = [wide(part.detach()) for part in parts]
        if known.cost is not None:
            weights = torch.add(weights, wide(known.cost), alpha=known.step)
        difference, value = ahead.gap(behind, weights, known.factor, known.add_up)
        if factors:
            more = (inner(others, factors) - inner(rest, factors)) * known.factor
            value = value + (more.sum() if known.add_up else more)
        # Only what the gradient needs, and neither input nor output, so that no reference closes a circle.
        ctx.difference, ctx.others, ctx.factor = difference, list(zip(others, rest, strict=True)), known.factor
        ctx.parts = [(part.shape, part.dtype) for part in parts]
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        weights, ((shape, dtype), *factors) = grads[0] * ctx.factor, ctx.parts
        each = weights[(..., *[None] * (len(shape) - weights.dim()))] if weights.dim() else weights
        gradients = [to_dtype(ctx.difference * each, dtype)]
        for ends, (own, kept) in zip(ctx.others, factors, strict=True):
            ahead, behind = (end.sum_to(own, weights.dtype, weights.unsqueeze(-1)) for end in ends)
            gradients.append(to_dtype(ahead - behind, kept))
        return None, *once((), gradients)


class _Known(NamedTuple):
    """What a gap is besides the parts: in one argument, because autograd looks at each."""

    ahead: Decision
    behind: Decision
    cost: Tensor | None
    step: float
    factor: float
    add_up: bool


def gap(
    ahead: Decision,
    behind: Decision,
    parts: Sequence[Tensor],
    *,
    cost: Tensor | None = None,
    step: float = 0.0,
    times: float = 1.0,
    reduction: Reduction = "none",
) -> Tensor:
    """``times * (<parts, ahead> - <parts, behind>)``, (...) or reduced, in float32 at least.

    Differentiable in the parts, of which the first has all batch axes; once, because the decisions depend on them.
    A cost is added to the first part, times the step.
    """
    if inside_transform():
        first, *factors = guarded(*parts)
        parts = (first if cost is None else wide(first) + step * wide(cost), *factors)
        return reduce(inner(ahead, parts) - inner(behind, parts), reduction) * times
    if reduction == "mean":
        instances = ahead[0].slots.shape[:-1].numel()
        times = times / instances if instances else math.nan
    value: Tensor = _Gap.apply(_Known(ahead, behind, cost, step, times, reduction != "none"), *parts)
    return value
