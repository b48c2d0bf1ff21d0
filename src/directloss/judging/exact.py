"""Exact expectations over the noise, for structures that can be enumerated.

For one entry e, hold the noise of all others. Let V1 be the best value of the structures that contain e, less
``theta_e`` itself, and V0 the best of those that do not, with losses l1 and l0. The maximiser contains e exactly where
``theta_e > t = V0 - V1``, so the one remaining integral is known: with f the density of the noise and
``z = (t - mu_e) / sigma``,

    d E[loss] / d mu_e  = E[(l1 - l0) f(z)] / sigma
    d E[loss] / d sigma = sum_e E[(l1 - l0) z f(z)] / sigma.

What is left is an expectation over the other entries' noise: independently scrambled Sobol sets give its value and, by
their spread, its standard error.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss.noise import Gumbel, Noise
from directloss.shapes import check_scale, fit_cost
from directloss.structures import Structure

MOST_STRUCTURES = 5_040
_SETS = 16
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Expectation:
    """A value and its standard error."""

    value: Tensor
    error: Tensor


@dataclass(frozen=True)
class Exact:
    """What a randomly perturbed predictor does on average."""

    probabilities: Expectation  # (N,), of every structure in the order of ``enumerate``
    loss: Expectation  # ()
    to_scores: Expectation  # (*E)
    to_scale: Expectation  # ()


def exact(
    structure: Structure,
    scores: Tensor,
    cost: Tensor,
    scale: float = 1.0,
    *,
    noise: Noise = Gumbel(),
    points: int = 1 << 15,
    generator: torch.Generator | None = None,
) -> Exact:
    """The distribution, the expected loss ``E[<cost, y>]`` and its gradients for one instance, scores (*E).

    ``points`` is the size of each of the 16 quasi-random sets. At scale 0 the loss is piecewise constant in the
    scores: its gradient is zero wherever it exists.

    Example:
        >>> import torch, directloss as dl
        >>> every = dl.exact(dl.Choice(), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
        >>> torch.allclose(every.probabilities.value, torch.tensor([0.0, 1.0]).double().softmax(0), atol=1e-4)
        True
    """
    every = enumerate_small(structure, scores)
    check_scale(torch.as_tensor(float(scale)))
    structure.ones_along(scores.detach(), fit_cost(cost, scores), (0.0,))  # for its checks
    theta, c = scores.detach().double().flatten(), fit_cost(cost, scores).double().flatten()
    losses = every @ c
    if scale == 0:
        best = (every @ theta).argmax()
        nothing = torch.zeros((), dtype=torch.float64)
        point = torch.nn.functional.one_hot(best, len(every)).double()
        known = (point, losses[best], torch.zeros(scores.shape, dtype=torch.float64), nothing)
        return Exact(*(Expectation(value, torch.zeros_like(value)) for value in known))
    if points < 2 or points & (points - 1):
        raise ValueError(f"points is {points}, expected a power of 2: only whole Sobol sets are balanced")
    sets = [
        _average(every, losses, theta, float(scale), noise, uniform)
        for uniform in _scrambled(theta.numel(), points, generator)
    ]
    probabilities, loss, to_scores, to_scale = (_expectation(torch.stack(parts)) for parts in zip(*sets, strict=True))
    # A structure that no point, or every point, meets has no spread: it may still be off by one point of all.
    one = (len(every) > 1) / (points * _SETS)
    probabilities.error.clamp_min_(one)
    loss.error.clamp_min_(one * (losses.max() - losses.min()))
    shaped = Expectation(to_scores.value.reshape(scores.shape), to_scores.error.reshape(scores.shape))
    return Exact(probabilities, loss, shaped, to_scale)


def enumerate_small(structure: Structure, scores: Tensor) -> Tensor:
    """Every structure over the entries of one instance, flattened, (N, E); or an error that says how many there are."""
    structure.solve(scores)  # for its checks
    if structure.batch_shape(scores):
        raise ValueError(
            f"scores have shape {tuple(scores.shape)}: {len(structure.batch_shape(scores))} axes before the entries of "
            f"{structure!r}; exact values are those of one instance, e.g. scores[0]"
        )
    structure.check_count(scores.shape, MOST_STRUCTURES)
    return structure.enumerate(scores.shape).flatten(1)


def _scrambled(entries: int, points: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Quasi-random points (points, E) in the open unit cube, scrambled anew for every set."""
    seeds = torch.randint(1 << 31, (_SETS,), generator=generator)
    for seed in seeds.tolist():
        drawn = torch.quasirandom.SobolEngine(entries, scramble=True, seed=seed).draw(points, dtype=torch.float64)
        yield drawn.clamp(2.0**-40, 1 - 2.0**-40)


def _average(
    every: Tensor, losses: Tensor, mu: Tensor, sigma: float, noise: Noise, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means over one set of points: probabilities (N,), loss (), gradient to the scores (E,) and to the scale ()."""
    counts, to_scores, to_scale = mu.new_zeros(len(every)), torch.zeros_like(mu), torch.zeros_like(mu)
    inside = every.mT > 0  # (E, N)
    for part in uniform.split(max(1, _CHUNK // len(every))):
        theta = mu + sigma * noise.quantile(part)
        values = theta @ every.mT
        counts += values.argmax(1).bincount(minlength=len(every))
        for e, with_e in enumerate(inside):
            if with_e.all() or not with_e.any():
                continue  # no structure can gain or lose this entry
            one, zero = values[:, with_e].max(1), values[:, ~with_e].max(1)
            step = losses[with_e][one.indices] - losses[~with_e][zero.indices]
            z = (zero.values - (one.values - theta[:, e]) - mu[e]) / sigma
            weight = step * noise.density(z) / sigma
            to_scores[e] += weight.sum()
            to_scale[e] += (weight * z).sum()
    probabilities = counts / len(uniform)
    return probabilities, probabilities @ losses, to_scores / len(uniform), to_scale.sum() / len(uniform)


def _expectation(sets: Tensor) -> Expectation:
    return Expectation(sets.mean(0), sets.std(0) / len(sets) ** 0.5)
