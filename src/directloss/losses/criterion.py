"""``direct_loss`` as a criterion: with nothing to tune, or with settings of yours."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from directloss.losses.direct import DirectOutput, Sides, evaluate_direct
from directloss.losses.epsilon import check_epsilon
from directloss.losses.growth import GrowingEpsilon
from directloss.losses.observation import above_smallest, observe, units
from directloss.losses.reduction import Reduction, check_reduction
from directloss.losses.shares import Shares
from directloss.losses.task import Augmented, Cost
from directloss.noise import Gumbel, Noise, Normal
from directloss.parts import Scores, as_parts
from directloss.perturbation import Scale, check_noise, check_samples
from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_backward, inside_transform


class DirectLoss(nn.Module):
    """``direct_loss`` as a criterion. ``DirectLoss(structure)`` needs nothing else: scale and epsilon find themselves.

    What was found is in the ``state_dict``; nothing has to be added to an optimiser. ``losses/shares.py`` is how it is
    found. A training step then solves three times for each sample, and three times more to see what its settings do.
    Only a forward pass in training mode with gradients changes them.

    Args:
        structure, reduction, augmented: as for ``direct_loss``.
        epsilon: None finds one for each side, and leaves out the division by them, so that gradients have no unit. A
            number is ``direct_loss``'s; ``GrowingEpsilon`` is the paper's rule.
        sides: None takes both, each with its own epsilon; "both" the same on both; "one" the better side alone. With an
            epsilon of yours as for ``direct_loss``, "one" by default.
        scale: of the noise, where a call gives none. None finds it if epsilon is found; otherwise there is no noise.
        noise: by default ``Normal()`` where the scale is found, otherwise ``Gumbel()``.
        samples: draws for each instance: by default two where the scale is found, otherwise one.

    A structure that takes no positive scores (paths with cycles) has the better side alone, without noise.

    Example:
        >>> import torch, directloss as dl
        >>> criterion = dl.DirectLoss(dl.Subset(2))
        >>> scores, cost = torch.zeros(4, 6, requires_grad=True), dl.costs.hamming(torch.eye(6)[:4])
        >>> criterion(scores, cost).backward()
        >>> scores.grad.shape, sorted(criterion.state())
        (torch.Size([4, 6]), ['epsilon', 'given_up', 'missed', 'scale', 'zero_gradient_fraction'])
    """

    def __init__(
        self,
        structure: Structure,
        *,
        epsilon: float | GrowingEpsilon | None = None,
        sides: Sides | None = None,
        scale: Scale | None = None,
        noise: Noise | None = None,
        samples: int | None = None,
        augmented: Augmented | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__()
        check_reduction(reduction)
        if sides not in (None, "one", "both"):
            raise ValueError(f"sides is {sides!r}, expected 'one', 'both', or None to find what each side is worth")
        self.structure, self.augmented, self.reduction = check_structure_type(structure), augmented, reduction
        self.found = Shares() if epsilon is None else None
        finds_scale = epsilon is None and scale is None and not structure.nonpositive
        self.noise: Noise = (Normal() if finds_scale else Gumbel()) if noise is None else noise
        check_noise(self.noise)
        self.epsilon = epsilon if epsilon is None or isinstance(epsilon, GrowingEpsilon) else check_epsilon(epsilon)
        self.scale = scale if scale is not None or finds_scale else 0.0
        self.sides: Sides | None = sides if epsilon is None and not structure.nonpositive else sides or "one"
        self.samples = check_samples((2 if finds_scale else 1) if samples is None else samples)
        self._informative: Tensor | None = None

    @property
    def zero_gradient_fraction(self) -> float:
        """The share of instances of the last training step that gave no gradient; NaN before the first."""
        if self._informative is None or not self._informative.numel():
            return math.nan
        return 1.0 - self._informative.double().mean().item()

    def state(self) -> dict[str, Any]:
        """What the settings are now, found or given: scale, epsilon, and what they are judged by."""
        if self.found is None:
            value = self.epsilon.value.tolist() if isinstance(self.epsilon, GrowingEpsilon) else self.epsilon
            return {"scale": self.scale, "epsilon": value, "zero_gradient_fraction": self.zero_gradient_fraction}
        epsilon, scale = self._found_settings(self.found)
        return {
            "scale": scale if self.scale is None else self.scale,
            "epsilon": epsilon,
            **self.found.shares(),
            "zero_gradient_fraction": self.zero_gradient_fraction,
        }

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
        scale = self.scale if scale is None else scale
        given = (*as_parts(scores), scale)
        wanted = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in given)
        learning = self.training and wanted and not inside_transform() and not inside_backward()
        if learning and self.found is not None and not self.found.started:
            self.found.start(*units(scores, cost, scale))
        epsilon, found = self._settings(scores, structure)
        output = evaluate_direct(
            scores,
            cost,
            structure,
            epsilon=epsilon,
            sides="one" if self.found is not None or self.sides is None else self.sides,  # a pair has both
            scale=found if scale is None else scale,
            noise=self.noise,
            samples=self.samples,
            augmented=self.augmented,
            generator=generator,
            reduction=self.reduction,
            divide=self.found is None,
        )
        if len(output.vertices[0].slots) > 1 and not inside_transform() and not inside_backward():
            self._informative = output.informative()
            if learning:
                self._learn(output, scores, cost, structure, moves_scale=scale is None)
        return output.returned(scores) if return_structure else output.loss

    def _found_settings(self, found: Shares) -> tuple[float | tuple[float, float], float]:
        """epsilon, a pair where there are two sides, and the scale."""
        scale, minus, plus = found.settings()
        return -minus if self.sides == "one" else (-minus, minus if self.sides == "both" else plus), scale

    def _settings(self, scores: Scores, structure: Structure) -> tuple[Any, float]:
        """epsilon as ``evaluate_direct`` takes it, and the scale that was found."""
        if self.found is not None:
            return self._found_settings(self.found)
        if not isinstance(self.epsilon, GrowingEpsilon):
            return self.epsilon, 0.0
        value = self.epsilon.value
        if not value.dim():
            return float(value), 0.0
        batch = structure.batch_shape(scores)
        return value.reshape(*value.shape, *[1] * (len(batch) - value.dim())).expand(batch), 0.0

    @torch.no_grad()
    def _learn(self, output: DirectOutput, scores: Scores, cost: Cost, structure: Structure, moves_scale: bool) -> None:
        if self.found is not None:
            if self.found.started:
                seen = observe(output, scores, cost, structure, self.augmented, moves_scale)
                self.found.observe(seen, moves_scale, moves_plus=self.sides is None)
        elif isinstance(self.epsilon, GrowingEpsilon) and self._informative is not None and self._informative.numel():
            dims = self.epsilon.value.dim()
            difference = self._informative.reshape(*self._informative.shape[:dims], -1).any(-1)
            positive: bool | Tensor = False
            if not difference.all():
                left = above_smallest(output, scores, cost, structure)
                positive = left.reshape(*left.shape[:dims], -1).any(-1)
            self.epsilon.update(difference, positive)

    def extra_repr(self) -> str:
        shown = {name: value for name, value in self.state().items() if name in ("scale", "epsilon")}
        if isinstance(self.epsilon, GrowingEpsilon):
            del shown["epsilon"]
        parts = [repr(self.structure), *(f"{name}={_short(value)}" for name, value in shown.items())]
        found = " (found)" if self.found is not None else ""
        return f"{', '.join(parts)}{found}, sides={self.sides!r}, noise={self.noise!r}, samples={self.samples}"


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    return f"{value:.4g}" if isinstance(value, int | float) else "..."
