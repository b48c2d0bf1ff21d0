"""The noise of a loss: what its ``scale``, ``noise`` and ``samples`` ask for."""

import torch
from torch import Tensor

from directloss.noise import Noise
from directloss.perturbation import (
    Scale,
    check_noise,
    check_samples,
    check_scale,
    draw,
    fit_scale,
    perturbed,
    scale_number,
)
from directloss.structures.base import Structure


def scale_and_noise(
    scale: Scale,
    noise: Noise | Tensor,
    samples: int,
    scores: Tensor,
    structure: Structure,
    generator: torch.Generator | None,
) -> tuple[Tensor | None, Tensor | None]:
    """sigma, with as many axes as the scores, and gamma (S, B..., *E); None without noise."""
    if not isinstance(scale, Tensor) and scale == 0:
        check_noise(noise)
        if check_samples(samples) > 1:
            raise ValueError(f"samples is {samples}, but without noise all are the same; give a scale, e.g. scale=1.0")
        return None, None
    _check_sign(structure)
    sigma = fit_scale(scale, scores, scores.shape[: scores.dim() - structure.entry_dims])
    return sigma, draw(noise, samples, scores, generator)


def sampled(
    scale: Scale,
    noise: Noise | Tensor,
    samples: int,
    scores: Tensor,
    structure: Structure,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """theta, (S, B..., *E), without gradient, and ``scale_and_noise``; a scale that is a number does not learn from it.

    Then the draws are not kept, and None stands for both.
    """
    if isinstance(scale, Tensor) or not isinstance(noise, Noise) or scale == 0:
        sigma, gamma = scale_and_noise(scale, noise, samples, scores, structure, generator)
        return perturbed(scores.detach(), None if sigma is None else sigma.detach(), gamma), sigma, gamma
    _check_sign(structure)
    number, count = scale_number(scale), check_samples(samples)
    check_scale(number)
    return noise.added_to(scores.detach(), number, count, generator), None, None


def _check_sign(structure: Structure) -> None:
    """Raise ValueError if additive noise would make scores that the structure does not take."""
    if structure.nonpositive:
        raise ValueError(
            f"{structure!r} takes no positive scores, which additive noise makes; perturb the scores yourself, with "
            "dl.perturb(scores, ..., multiplicative=True), and leave scale at 0"
        )
