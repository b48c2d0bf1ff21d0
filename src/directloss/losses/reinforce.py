"""The score function of perturb-and-maximise (Williams 1992): unbiased for any task loss, from its values alone.

``theta = mu + sigma * gamma`` has the density ``prod_e f((theta_e - mu_e) / sigma_e) / sigma_e``. With y its maximiser
and ``psi = -f'/f``, the noise's ``score``,

    d E[loss(y)] / d mu_e    = E[a psi(gamma_e)] / sigma_e
    d E[loss(y)] / d sigma_e = E[a (gamma_e psi(gamma_e) - 1)] / sigma_e,

where ``a = loss(y) - baseline``, the baseline of a sample being the mean loss of the others (leave-one-out: Kool et al.
2019), which changes no mean. Parts of the scores without noise have no density to move. For a linear loss they follow
from E[max_y <theta, y>], whose second derivatives are symmetric:

    d E[<cost, y>] / d factor = E[(y_factor - baseline) sum_e cost_e psi(gamma_e) / sigma_e].
"""

from typing import Any

import torch
from torch import Tensor

from directloss.losses.problem import Problem, wide
from directloss.losses.reduction import Reduction
from directloss.losses.solving import Decision
from directloss.losses.task import Cost, check_function, task_loss
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, fit_cost
from directloss.perturbation import Scale
from directloss.structures.base import Structure
from directloss.transforms import inside_transform


def reinforce(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    scale: Scale = 1.0,
    noise: Noise = Gumbel(),
    samples: int = 2,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """The expected task loss ``E[loss(y)]``, with the score function as its gradient. One solve for each sample.

    Its mean is the exact gradient; its variance grows with the number of entries and with 1 / scale. An entry that no
    structure has gets a gradient of mean 0, not 0.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: linear coefficients of the task loss, or any function of structures (B..., *E) to losses (B...), which
            need not be differentiable.
        structure: what is predicted; any.
        scale: of the noise, above 0: a number, one for each instance (B...), or one for each entry.
        noise: what is drawn.
        samples: draws for each instance; one alone has no baseline, and a far larger variance.
        generator: the only source of randomness (None: torch's default generator).
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the structures predicted under the noise, (samples, B..., *E).

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> generator = torch.Generator().manual_seed(0)
        >>> any_loss = lambda y: (y.argmax(-1) != 1).float()
        >>> dl.reinforce(scores, any_loss, dl.Choice(), samples=10_000, generator=generator).backward()
        >>> (9 * scores.grad).round()  # exactly p_1 p_j, and -p_1 (1 - p_1) for the right one, each p being 1/3
        tensor([ 1., -2.,  1.])
    """
    if not isinstance(noise, Noise):
        raise TypeError(f"noise is {type(noise).__name__}; reinforce needs its density: dl.Gumbel(), dl.Normal(), ...")
    problem = Problem.of(scores, structure, reduction)
    sigma, gamma, theta = problem.perturbed(scale, noise, samples, generator)
    if sigma is None or gamma is None or (not inside_transform() and (sigma == 0).any()):
        raise ValueError("scale is 0: without noise nothing has a density; give a positive scale, e.g. scale=1.0")
    first, *factors = map(wide, problem.parts)
    sigma, gamma, (y,) = wide(sigma), wide(gamma), problem.solve(theta)
    entries = tuple(range(-problem.structure.entry_dims, 0))
    psi = noise.score(gamma) / sigma.detach()
    linear = fit_cost(cost, problem.parts[0]) if isinstance(cost, Tensor) else None
    losses = _black_box(cost, problem, y) if linear is None else y[0].inner(wide(linear))
    # Linear in scores and scale, so that its gradient is the rule's; of its value nothing is left.
    slopes = first * psi + sigma * (gamma * psi - 1 / sigma.detach())
    terms = _advantage(losses) * slopes.sum(entries)
    if linear is not None:
        along = _advantage((linear * psi).sum(entries))
        terms = sum((along * v.inner(factor) for v, factor in zip(y[1:], factors, strict=True)), terms)
    attached = terms.mean(0)
    loss = problem.reduced(losses.mean(0) + (attached - attached.detach()), reduction)
    return (loss, problem.dense(y)) if return_structure else loss


def _advantage(values: Tensor) -> Tensor:
    """What each sample (S, B...) has above the mean of the others."""
    samples = len(values)
    return values if samples == 1 else (values - values.mean(0)) * (samples / (samples - 1))


def _black_box(cost: Cost, problem: Problem, y: Decision) -> Tensor:
    """The losses (S, B...) that a function gives."""
    if any(factor.requires_grad for factor in problem.parts[1:]):
        raise ValueError(
            "scores have parts without noise, whose gradient needs a linear task loss; give the cost as coefficients, "
            "or detach the other parts"
        )
    return task_loss(check_function(cost), problem.dense(y), problem.batch)[0]
