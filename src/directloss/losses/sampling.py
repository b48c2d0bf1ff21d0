"""The noise of a loss: what its ``scale``, ``noise`` and ``samples`` ask for."""

import torch
from torch import Tensor

from directloss.noise import Noise
from directloss.perturbation import Scale, check_noise, check_samples, draw, fit_scale
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
    if structure.nonpositive:
        raise ValueError(
            f"{structure!r} takes no positive scores, which additive noise makes; perturb the scores yourself, with "
            "dl.perturb(scores, ..., multiplicative=True), and leave scale at 0"
        )
    sigma = fit_scale(scale, scores, scores.shape[: scores.dim() - structure.entry_dims])
    return sigma, draw(noise, samples, scores, generator)
