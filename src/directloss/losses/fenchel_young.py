"""The perturbed Fenchel-Young loss (Berthet et al. 2020): towards a target structure, without a partition function.

With ``theta = mu + sigma * gamma`` and F(mu) = E[max_y <theta, y>], which is convex with the gradient E[y(theta)],

    loss = F(mu) - <mu, target>,    with the gradient E[y(theta)] - target in mu, E[<gamma, y(theta)>] in sigma.

The noise has mean zero, so that the target may be scored under the same noise, which is what is done here:

    loss = E[max_y <theta, y> - <theta, target>].

Then no draw gives a negative loss, and a draw under which the target wins gives no loss and no gradient. A
Fenchel-Young loss also has the conjugate F*(target), a constant in mu. It is 0 for a structure, the loss tending to 0
as the target wins ever more clearly; for a mean of structures, which may be a target as well, it is left out. Without
noise this is the structured perceptron; for a choice under Gumbel noise, sigma times the cross-entropy of mu / sigma.
"""

from typing import Any

import torch
from torch import Tensor

from directloss.losses.problem import Problem, gap
from directloss.losses.reduction import Reduction
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores
from directloss.perturbation import Scale
from directloss.structures.base import Structure


def fenchel_young(
    scores: Scores,
    target: Tensor,
    structure: Structure,
    *,
    scale: Scale = 1.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """``E[max_y <theta, y> - <theta, target>]``, theta being the scores under noise. One solve for each sample.

    ``dl.exact(...).best`` has its true value on a small instance: ``best - <scores, target>``.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        target: the right structure, as its first part; broadcasts to (B..., *E). Where the structure does not refuse
            it (a chain does), a mean of structures.
        structure: what is predicted; any.
        scale: of the noise: a number, one for each instance (B...), or one for each entry. 0 draws no noise.
        noise: what is drawn, or the draws themselves, (samples, B..., *E), to share them between calls.
        samples: draws for each instance (with given draws, leave it out).
        generator: the only source of randomness (None: torch's default generator).
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the structures predicted under the noise, (samples, B..., *E).

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.5, 1.0, -1.0]], requires_grad=True)
        >>> loss = dl.fenchel_young(scores, torch.tensor([[1.0, 0.0, 0.0]]), dl.Choice(), scale=0.0)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (0.5, tensor([[-1.,  1.,  0.]]))
    """
    problem = Problem.of(scores, structure, reduction)
    right = problem.complete(target)
    _, _, theta = problem.perturbed(scale, noise, samples, generator)
    (y,) = problem.solve(theta)
    repeated = tuple(v.repeated(len(theta[0])) for v in right)
    loss = problem.reduced(gap(y, repeated, theta).mean(0), reduction)
    return (loss, problem.dense(y)) if return_structure else loss
