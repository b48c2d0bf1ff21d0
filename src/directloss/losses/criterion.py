"""``direct_loss`` as a criterion, with state."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from directloss.losses.direct import DirectOutput, Sides, evaluate_direct
from directloss.losses.epsilon import AdaptiveEpsilon, check_epsilon
from directloss.losses.reduction import Reduction, check_reduction
from directloss.losses.task import Augmented, Cost
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import Scale, check_noise, check_samples
from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_backward, inside_transform


class DirectLoss(nn.Module):
    """``direct_loss`` as a criterion, with an epsilon that may adapt and a diagnostic.

    After a training step, ``zero_gradient_fraction`` is the share of instances that gave no gradient.

    Args:
        structure, sides, noise, samples, reduction, augmented: as for ``direct_loss``.
        epsilon: a number, or ``AdaptiveEpsilon``, which adapts in training mode and is part of the ``state_dict``.
        scale: of the noise, where a call gives none.

    Example:
        >>> import torch, directloss as dl
        >>> criterion = dl.DirectLoss(dl.Subset(2), epsilon=dl.AdaptiveEpsilon(-1.0), sides="both", samples=5)
        >>> scores = torch.zeros(4, 6, requires_grad=True)
        >>> criterion(scores, dl.costs.hamming(torch.eye(6)[:4]), scale=1.0).backward()
        >>> scores.grad.shape
        torch.Size([4, 6])
    """

    def __init__(
        self,
        structure: Structure,
        *,
        epsilon: float | AdaptiveEpsilon,
        sides: Sides = "one",
        scale: Scale = 0.0,
        noise: Noise = Gumbel(),
        samples: int = 1,
        augmented: Augmented | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__()
        check_noise(noise)
        check_reduction(reduction)
        self.structure, self.sides, self.noise = check_structure_type(structure), sides, noise
        self.samples, self.augmented, self.reduction, self.scale = check_samples(samples), augmented, reduction, scale
        self.epsilon = epsilon if isinstance(epsilon, AdaptiveEpsilon) else check_epsilon(epsilon)
        self._informative: Tensor | None = None

    @property
    def zero_gradient_fraction(self) -> float:
        """The share of instances of the last training step that gave no gradient; NaN before the first."""
        if self._informative is None or not self._informative.numel():
            return math.nan
        return 1.0 - self._informative.double().mean().item()

    @torch.compiler.disable
    def forward(
        self,
        scores: Scores,
        cost: Cost,
        *,
        structure: Structure | None = None,
        scale: Scale | None = None,
        generator: torch.Generator | None = None,
        return_structure: bool = False,
    ) -> Any:
        """The loss; ``structure`` and ``scale``, where given, stand for those of the criterion."""
        structure = self.structure if structure is None else structure
        output = evaluate_direct(
            scores,
            cost,
            structure,
            epsilon=self._epsilon(scores, structure),
            sides=self.sides,
            scale=self.scale if scale is None else scale,
            noise=self.noise,
            samples=self.samples,
            augmented=self.augmented,
            generator=generator,
            reduction=self.reduction,
        )
        if len(output.vertices[0].slots) > 1 and not inside_transform() and not inside_backward():
            self._observe(output, scores, cost, structure)
        return output.returned(scores) if return_structure else output.loss

    def _epsilon(self, scores: Scores, structure: Structure) -> float | Tensor:
        if not isinstance(self.epsilon, AdaptiveEpsilon):
            return self.epsilon
        value = self.epsilon.value
        if not value.dim():
            return float(value)
        batch = structure.batch_shape(scores)
        return value.reshape(*value.shape, *[1] * (len(batch) - value.dim())).expand(batch)

    @torch.no_grad()
    def _observe(self, output: DirectOutput, scores: Scores, cost: Cost, structure: Structure) -> None:
        self._informative = informative = output.informative()
        if not (self.training and isinstance(self.epsilon, AdaptiveEpsilon) and informative.numel()):
            return
        dims = self.epsilon.value.dim()
        difference = informative.reshape(*informative.shape[:dims], -1).any(-1)
        if difference.all():
            self.epsilon.update(difference, False)
        else:
            positive = self._loss_is_positive(output, scores, cost, structure)
            self.epsilon.update(difference, positive.reshape(*positive.shape[:dims], -1).any(-1))

    def _loss_is_positive(self, output: DirectOutput, scores: Scores, cost: Cost, structure: Structure) -> Tensor:
        """Whether an instance's loss is above the smallest that its structures allow, (B...).

        Compared with the best structure, not with zero: ``<cost, y>`` lacks the loss's constant.
        """
        first, *factors = as_parts(scores)
        y = output.vertices[0].select(0)
        if not isinstance(cost, Tensor):
            return torch.stack([cost(one) for one in y.dense(first.dtype)]).mean(0) > 0
        coefficients = fit_cost(cost, first)
        zeros = tuple(torch.zeros_like(factor) for factor in factors)
        (best, *_) = structure.vertices_along((-coefficients.expand_as(first), *zeros), None, (0.0,))
        smallest = best.select(0).inner(coefficients)
        return y.inner(coefficients).mean(0) > smallest + 1e-6 * (1 + smallest.abs())

    def extra_repr(self) -> str:
        fixed = "" if isinstance(self.epsilon, AdaptiveEpsilon) else f"epsilon={self.epsilon:g}, "
        return f"{self.structure!r}, {fixed}sides={self.sides!r}, noise={self.noise!r}, samples={self.samples}"
