"""Implicit maximum likelihood (Niepert et al. 2021).

Forward, the layer perturbs and maximises: ``y = argmax_y <mu + sigma gamma, y>``, or the mean of such y over samples.
Backward, with g the gradient to y, the target distribution has the scores ``mu - step * g``; on the same noise,

    y_step = argmax_y <mu - step * g + sigma gamma, y>
    to mu: E[(y - y_step) / step],      to sigma: E[<gamma, y - y_step> / step].

Without noise this is blackbox differentiation. With an ``AdaptiveStep`` and both sides, the central difference, it is
the adaptive form (Minervini et al. 2023).
"""

from functools import partial

import torch
from torch import Tensor

from directloss.layers.adaptive_step import AdaptiveStep, check_step
from directloss.layers.blackbox import Blackbox
from directloss.layers.decision import decide
from directloss.losses.direct import Sides, check_sides
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores
from directloss.perturbation import Scale
from directloss.structures.base import Structure


def imle(
    scores: Scores,
    structure: Structure,
    *,
    step: float | AdaptiveStep = 1.0,
    sides: Sides = "one",
    scale: Scale = 1.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The mean over samples of the best structures under noise, (B..., *E). Takes every structure.

    Args:
        scores: (B..., *E), or a tuple of parts; each gets a gradient.
        structure: what is predicted.
        step: how far the target distribution's scores lie, times the gradient that arrives; or an ``AdaptiveStep``.
        sides: "one" is Niepert's rule, "both" the central difference, one solve more.
        scale: of the noise: a number, one for each instance (B...), or one for each entry; it gets a gradient too.
        noise: what is drawn, or the draws themselves, (samples, B..., *E).
        samples: draws for each instance, which are averaged. To keep them apart, expand the scores instead.
        generator: the only source of randomness (None: torch's default generator).

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.zeros(4, 5, requires_grad=True)
        >>> y = dl.imle(scores, dl.Subset(2), step=10.0, samples=8)
        >>> (y * torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])).sum().backward()
        >>> y.shape, (scores.grad[:, 4] > 0).any()
        (torch.Size([4, 5]), tensor(True))
    """
    check_sides(sides)
    check_step(step)
    rule = partial(Blackbox, step=step, both=sides == "both")
    return decide(rule, scores, structure, scale, noise, samples, generator)
