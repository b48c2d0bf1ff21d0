"""Is my gradient right? A rule's gradients against the exact ones, on an instance small enough to enumerate.

The calls themselves, of a loss or a layer by its own convention, are in ``calls``.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from directloss.judging.calls import accepted, check_settings, estimate
from directloss.judging.exact import enumerate_small, exact
from directloss.judging.measurement import Audit, Measurement, Tally, gradient_of
from directloss.losses.task import Cost
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import check_samples
from directloss.structures.base import Structure

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
_LEAST_POINTS = 1 << 15  # of the exact values


def audit(
    rule: Callable[..., Tensor],
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    scale: float | Sequence[float] | Tensor = 1.0,
    epsilons: Sequence[float] | None = None,
    sides: Sequence[str] = ("one", "both"),
    samples: Sequence[int] = (1,),
    settings: Mapping[str, Sequence[Any]] | None = None,
    repetitions: int = 300_000,
    noise: Noise = Gumbel(),
    generator: torch.Generator | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Measure a loss or a layer, as an estimate of the gradient of ``E[<cost, y>]``, against the exact gradient.

    Args:
        rule: called with scores (R, *E). A loss, ``loss(scores, cost, structure, ...)``, returns one differentiable
            loss for each instance, (R,), or their mean; one whose second argument is named ``target`` gets the
            structure with the smallest cost. A layer, ``layer(scores, structure, ...)``, returns a differentiable y,
            with ``<cost, y>`` as the loss behind it. Of ``scale`` (R,), ``epsilon``, ``sides``, ``samples``,
            ``noise``, ``generator`` and ``reduction`` ("none") a rule gets, by keyword, those that its signature names.
        scores, cost: of one instance, (*E).
        structure: one that can be enumerated.
        scale: of the noise; one number or several.
        epsilons, sides, samples: the grid. With sides "both" the sign of epsilon means nothing and is dropped. By
            default epsilons of both signs, .5 to 5.6 times the scale over the difference of the largest and smallest
            loss: where the two maximisers often differ, and the noise still matters.
        settings: further axes of the grid, e.g. ``{"temperature": [0.5, 1.0]}``; the rule must take them.
        repetitions: independent estimates for each setting.
        noise: what the rule is told to draw, and what the exact values hold for.
        generator: the only source of randomness (None: torch's default generator).
        on_progress: called with the number of settings done and of all.

    Example:
        >>> import torch, directloss as dl
        >>> scores, cost = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 1.0, 1.0])
        >>> found = dl.audit(dl.direct_loss, scores, cost, dl.Choice(), epsilons=[0.1], sides=["both"])
        >>> found.rows[0].bias < 0.02
        True
    """
    structure = structure.for_batch(0)  # its data are those of one instance
    scales: list[float] = torch.as_tensor(scale, dtype=torch.float64).flatten().tolist()
    if not isinstance(repetitions, int) or repetitions < 2:
        raise ValueError(f"repetitions is {repetitions!r}, expected a whole number, at least 2: one has no spread")
    for count in samples:
        check_samples(count)
    further = check_settings(rule, settings or {})
    grid = []
    for one in scales:
        chosen = epsilons
        if epsilons is None and "epsilon" not in further and accepted(rule, {"epsilon": None}):
            chosen = _default_epsilons(scores, cost, structure, one)
        axes = {"epsilon": chosen or (), "sides": sides, "samples": samples} | further
        grid += [(one, at) for at in _grid(rule, axes)]
    if not grid:
        raise ValueError("the grid is empty; give at least one scale, epsilon, side and number of samples")
    # The exact values' own error, which all settings share, should be the smaller part of theirs.
    points = max(_LEAST_POINTS, 1 << (repetitions // 64).bit_length())
    truth = {
        one: exact(scores, cost, structure, one, noise=noise, points=points, generator=generator) for one in scales
    }
    rows: list[Measurement] = []
    for done, (one, at) in enumerate(grid):
        on_progress(done, len(grid))
        given = at | accepted(rule, {"noise": noise, "generator": generator, "reduction": "none"}) | at
        if not done:  # whatever is compiled at the first call is no part of its cost
            aside = accepted(rule, {"generator": torch.Generator(as_parts(scores)[0].device).manual_seed(0)})
            next(estimate(rule, scores, cost, structure, one, given | aside, 2))
        tallies: dict[str, Tally] = {}
        for estimates, seconds in estimate(rule, scores, cost, structure, one, given, repetitions):
            for target, values in estimates.items():
                tallies.setdefault(target, Tally(gradient_of(truth[one], target))).add(values, seconds)
        rows += [tally.measurement(target, one, at) for target, tally in tallies.items()]
    on_progress(len(grid), len(grid))
    return Audit(repr(structure), truth, rows)


def _default_epsilons(scores: Scores, cost: Cost, structure: Structure, scale: float) -> list[float]:
    parts = as_parts(scores)
    every = enumerate_small(parts, structure)[0]
    if isinstance(cost, Tensor):
        linear = fit_cost(cost, parts[0]).double().expand_as(parts[0])
        losses, size = every.inner(linear), linear.abs().sum()  # losses may cancel, but their rounding does not
    else:
        losses = cost(every.dense(parts[0].dtype)).detach().double()
        size = losses.abs().max()
    spread = (losses.max() - losses.min()).item()
    if spread <= 1e-6 * size:
        raise ValueError("every structure has the same loss under this cost: there is no gradient to audit")
    return [sign * step * (scale or 1.0) / spread for sign in (-1, 1) for step in STEPS]


def _grid(rule: Callable[..., Tensor], axes: dict[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of what the rule takes; both sides of a negative epsilon are those of a positive one."""
    axes = accepted(rule, axes)
    seen = []
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        if settings.get("sides") == "both" and "epsilon" in settings:
            settings["epsilon"] = abs(settings["epsilon"])
        if settings not in seen:
            seen.append(settings)
            yield settings
