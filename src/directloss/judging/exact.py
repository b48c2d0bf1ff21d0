"""Exact expectations over the noise, for structures that can be enumerated.

For one entry e, hold the noise of all others. For each value v that the entry can take, let V_v be the best value of
the structures with ``y_e = v``, less ``v theta_e``, and l_v their loss. Over theta_e the best value is the upper
envelope of the lines ``V_v + v theta_e``: the entry is v between the breakpoints a_v and b_v of the envelope, so that
the one remaining integral is known. With f the density of the noise and ``z(t) = (t - mu_e) / sigma``,

    d E[loss] / d mu_e  = sum_v E[l_v (f(z(a_v)) - f(z(b_v)))] / sigma
    d E[loss] / d sigma = sum_e sum_v E[l_v (z(a_v) f(z(a_v)) - z(b_v) f(z(b_v)))] / sigma.

What is left is an expectation over the other entries' noise: independently scrambled Sobol sets give its value and, by
their spread, its standard error. The parts of the scores without noise follow from ``E[max]``, whose second derivatives
are symmetric: for a linear loss, d E[<cost, y>] / d factor = sum_e cost_e d E[y_factor] / d mu_e.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from directloss.losses.task import Cost
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, Vertices, as_parts, fit_cost
from directloss.perturbation import check_scale
from directloss.structures.base import Structure, check_structure_type

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
    to_scores: Expectation  # (*E), of the first part
    to_scale: Expectation  # ()
    best: Expectation  # (), of max_y <theta, y>: less <scores, target>, the true value of dl.fenchel_young
    to_factors: tuple[Expectation, ...] = ()  # of the other parts, in the shapes they have


def exact(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    scale: float = 1.0,
    *,
    noise: Noise = Gumbel(),
    points: int = 1 << 15,
    generator: torch.Generator | None = None,
) -> Exact:
    """The distribution, the expected loss ``E[<cost, y>]`` and its gradients for one instance, scores (*E).

    ``cost`` may be a function of structures (N, *E) to losses (N,), unless the scores have further parts. ``points`` is
    the size of each of the 16 quasi-random sets. At scale 0 the loss is piecewise constant in the scores: its gradient
    is zero wherever it exists.

    Example:
        >>> import torch, directloss as dl
        >>> every = dl.exact(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), dl.Choice())
        >>> torch.allclose(every.probabilities.value, torch.tensor([0.0, 1.0]).double().softmax(0), atol=1e-4)
        True
    """
    parts = as_parts(scores)
    vertices = enumerate_small(parts, structure)
    every = tuple(v.dense(torch.float64).flatten(1) for v in vertices)
    check_scale(float(scale))
    if isinstance(cost, Tensor):
        coefficients = fit_cost(cost, parts[0])
        structure.vertices_along(parts, coefficients, (0.0,))  # for its checks
        linear = coefficients.double().expand_as(parts[0]).flatten()
        losses = every[0] @ linear
    else:
        linear = None
        losses = cost(every[0].reshape(-1, *parts[0].shape).to(parts[0].dtype)).detach().double()
        if losses.shape != every[0].shape[:1]:
            raise ValueError(
                f"cost returned shape {tuple(losses.shape)} for {len(every[0])} structures; expected one each"
            )
        if len(parts) > 1:
            raise ValueError("gradients to factors are exact for linear costs only; give the cost as coefficients")
    mu = parts[0].detach().double().flatten()
    fixed = torch.zeros(len(losses), dtype=torch.float64)  # what the parts without noise add to every structure
    for v, part in zip(vertices[1:], parts[1:], strict=True):
        fixed += v.inner(part.detach().double())
    if scale == 0:
        largest, best = (every[0] @ mu + fixed).max(0)
        nothing = torch.zeros((), dtype=torch.float64)
        point = torch.nn.functional.one_hot(best, len(losses)).double()
        zeros = [torch.zeros(part.shape, dtype=torch.float64) for part in parts]
        known = (point, losses[best], zeros[0], nothing, largest, *zeros[1:])
        probabilities, loss, to_scores, to_scale, reached, *factors = (
            Expectation(v, torch.zeros_like(v)) for v in known
        )
        return Exact(probabilities, loss, to_scores, to_scale, reached, tuple(factors))
    if points < 2 or points & (points - 1):
        raise ValueError(f"points is {points}, expected a power of 2: only whole Sobol sets are balanced")
    sets = [
        _average(every, losses, linear, mu, fixed, float(scale), noise, uniform)
        for uniform in _scrambled(mu.numel(), points, generator)
    ]
    probabilities, loss, to_scores, to_scale, reached, *to_factors = (
        _expectation(torch.stack(each)) for each in zip(*sets, strict=True)
    )
    # A structure that no point, or every point, meets has no spread: it may still be off by one point of all.
    one = (len(losses) > 1) / (points * _SETS)
    probabilities.error.clamp_min_(one)
    loss.error.clamp_min_(one * (losses.max() - losses.min()))
    shaped = [
        Expectation(_to_shape(found.value, part, entries), _to_shape(found.error, part, entries))
        for found, part, entries in zip((to_scores, *to_factors), parts, structure.fit(parts)[0], strict=True)
    ]
    return Exact(probabilities, loss, shaped[0], to_scale, reached, tuple(shaped[1:]))


def enumerate_small(parts: tuple[Tensor, ...], structure: Structure) -> tuple[Vertices, ...]:
    """Every structure of one instance; or an error that says how many there are."""
    check_structure_type(structure)
    batch = structure.batch_shape(parts)
    if batch:
        raise ValueError(
            f"scores have shape {tuple(parts[0].shape)}: {len(batch)} axes before the entries of {structure!r}; exact "
            "values are those of one instance, e.g. scores[0]"
        )
    structure.check_count(parts, MOST_STRUCTURES)
    return structure.enumerated(parts)


def _to_shape(value: Tensor, part: Tensor, entries: torch.Size) -> Tensor:
    """A gradient over all entries, summed to the shape of a part that broadcasts over some of them."""
    shape = (*[1] * (len(entries) - part.dim()), *part.shape)
    return value.reshape(entries).sum_to_size(shape).reshape(part.shape)


def _scrambled(entries: int, points: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Quasi-random points (points, E) in the open unit cube, scrambled anew for every set."""
    seeds = torch.randint(1 << 31, (_SETS,), generator=generator)
    for seed in seeds.tolist():
        drawn = torch.quasirandom.SobolEngine(entries, scramble=True, seed=seed).draw(points, dtype=torch.float64)
        yield drawn.clamp(2.0**-40, 1 - 2.0**-40)


def _average(
    every: tuple[Tensor, ...],
    losses: Tensor,
    linear: Tensor | None,
    mu: Tensor,
    fixed: Tensor,
    sigma: float,
    noise: Noise,
    uniform: Tensor,
) -> tuple[Tensor, ...]:
    """Means over one set of points: probabilities (N,), loss (), gradients to the scores (E,) and to the scale (), the
    best value (), and gradients to each factor, over all its entries."""
    y, *factors = every
    counts, to_scores, to_scale = mu.new_zeros(len(y)), torch.zeros_like(mu), torch.zeros_like(mu)
    to_factors, reached = [mu.new_zeros(factor.shape[1]) for factor in factors], mu.new_zeros(())
    groups = [
        [(value, (y[:, e] == value).nonzero().squeeze(1)) for value in y[:, e].unique().tolist()]
        for e in range(len(mu))
    ]
    for part in uniform.split(max(1, _CHUNK // len(y))):
        theta = mu + sigma * noise.quantile(part)
        values = theta @ y.mT + fixed
        largest, winner = values.max(1)
        reached += largest.sum()
        counts += winner.bincount(minlength=len(y))
        for e, group in enumerate(groups):
            if len(group) == 1:
                continue  # no structure can gain or lose this entry
            best = [values[:, members].max(1) for _, members in group]
            at = torch.tensor([value for value, _ in group], dtype=mu.dtype)
            lines = torch.stack([found.values for found in best], 1) - at * theta[:, e : e + 1]
            winners = torch.stack([members[found.indices] for found, (_, members) in zip(best, group, strict=True)], 1)
            low, high = (_density((end - mu[e]) / sigma, noise) for end in _envelope(lines, at))
            weight = (low[0] - high[0]) / sigma
            to_scores[e] += (losses[winners] * weight).sum()
            to_scale[e] += (losses[winners] * (low[1] - high[1])).sum() / sigma
            if linear is not None:
                for factor, to_factor in zip(factors, to_factors, strict=True):
                    to_factor += linear[e] * (weight.flatten() @ factor[winners.flatten()])
    probabilities, count = counts / len(uniform), len(uniform)
    sums = (to_scores, to_scale.sum(), reached, *to_factors)
    return probabilities, probabilities @ losses, *(total / count for total in sums)


def _envelope(lines: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Where each of the lines ``lines + slopes * t`` (P, V), slopes rising, begins and ends to be the largest.

    A line that never is begins where it ends.
    """
    gap = slopes - slopes[:, None]  # [v, w]: w's slope less v's
    crossing = (lines[:, :, None] - lines[:, None, :]) / torch.where(gap == 0, 1.0, gap)
    low = crossing.masked_fill(gap >= 0, -torch.inf).amax(2)
    high = crossing.masked_fill(gap <= 0, torch.inf).amin(2)
    return low, torch.maximum(low, high)


def _density(z: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """``f(z)`` and ``z f(z)``, which are nothing at infinity."""
    inside = z.isfinite()
    z = torch.where(inside, z, 0.0)
    f = torch.where(inside, noise.density(z), 0.0)
    return f, z * f


def _expectation(sets: Tensor) -> Expectation:
    return Expectation(sets.mean(0), sets.std(0) / len(sets) ** 0.5)
