"""What losses share: checked scores, maximisers that work inside ``torch.func``, and inner products to differentiate.

A loss that is made of maxima is an expression in ``<scores, y>``, with y found by a maximiser and constant from then
on. Autograd knows its gradient: y itself, for every part of the scores and, through ``theta = mu + sigma * gamma``, for
the scale. So a loss is written as its formula, and there is no backward pass to write.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss.losses.once import guarded
from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.losses.sampling import scale_and_noise
from directloss.losses.solving import Decision, solved
from directloss.noise import Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import Scale, perturbed
from directloss.structures.base import Structure, check_structure_type


class Problem(NamedTuple):
    """Scores and a structure that fit together."""

    structure: Structure
    entries: tuple[torch.Size, ...]
    parts: tuple[Tensor, ...]  # the first with all batch axes; a second derivative through them raises

    @classmethod
    def of(cls, scores: Scores, structure: Structure, reduction: Reduction) -> "Problem":
        """Raise TypeError or ValueError unless they fit."""
        check_structure_type(structure)
        check_reduction(reduction)
        parts = structure.expanded(as_parts(scores))
        entries, batch = structure.fit(parts)
        return cls(structure.for_batch(len(batch)), entries, guarded(*parts))

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
        return reduce(value.to(self.parts[0].dtype), reduction)

    def dense(self, decision: Decision) -> Tensor:
        """The first part of a decision, (..., *E)."""
        return decision[0].dense(self.parts[0].dtype)


def inner(decision: Decision, parts: Sequence[Tensor]) -> Tensor:
    """``<parts, y>`` over all parts, (...). Differentiable in the parts; in float32 at least."""
    terms = [v.inner(wide(part)) for v, part in zip(decision, parts, strict=True)]
    total: Tensor = sum(terms[1:], terms[0])
    return total


def wide(tensor: Tensor) -> Tensor:
    """In float32 at least: sums in half precision are far off."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
