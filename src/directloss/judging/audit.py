"""Is my gradient right? A loss's gradients against the exact ones, on an instance small enough to enumerate."""

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from directloss.judging.exact import enumerate_small, exact
from directloss.judging.measurement import Audit, Measurement, Tally, gradient_of
from directloss.losses.task import Cost
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import check_samples
from directloss.structures.base import Structure

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
_CHUNK = 4_000_000
_LEAST_POINTS = 1 << 15  # of the exact values


def audit(
    loss: Callable[..., Tensor],
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    scale: float | Sequence[float] | Tensor = 1.0,
    epsilons: Sequence[float] | None = None,
    sides: Sequence[str] = ("one", "both"),
    samples: Sequence[int] = (1,),
    repetitions: int = 300_000,
    noise: Noise = Gumbel(),
    generator: torch.Generator | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Measure a loss, as an estimate of the gradient of ``E[<cost, y>]``, against the exact gradient.

    Args:
        loss: called as ``loss(scores, cost, structure, ...)`` with scores (R, *E), it returns one differentiable loss
            for each instance, (R,), or their mean. Of ``scale`` (R,), ``epsilon``, ``sides``, ``samples``, ``noise``,
            ``generator`` and ``reduction`` ("none") it gets, by keyword, those that its signature names.
            ``dl.direct_loss`` fits.
        scores, cost: of one instance, (*E).
        structure: one that can be enumerated.
        scale: of the noise; one number or several.
        epsilons, sides, samples: the grid. With sides "both" the sign of epsilon means nothing and is dropped. By
            default epsilons of both signs, .5 to 5.6 times the scale over the difference of the largest and smallest
            loss: where the two maximisers often differ, and the noise still matters.
        repetitions: independent estimates for each setting.
        noise: what the loss is told to draw, and what the exact values hold for.
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
    grid = [
        (one, settings)
        for one in scales
        for settings in _grid(
            loss,
            {
                "epsilon": _default_epsilons(scores, cost, structure, one) if epsilons is None else epsilons,
                "sides": sides,
                "samples": samples,
            },
        )
    ]
    if not grid:
        raise ValueError("the grid is empty; give at least one scale, epsilon, side and number of samples")
    # The exact values' own error, which all settings share, should be the smaller part of theirs.
    points = max(_LEAST_POINTS, 1 << (repetitions // 64).bit_length())
    truth = {
        one: exact(scores, cost, structure, one, noise=noise, points=points, generator=generator) for one in scales
    }
    rows: list[Measurement] = []
    for done, (one, settings) in enumerate(grid):
        on_progress(done, len(grid))
        given = settings | _accepted(loss, {"noise": noise, "generator": generator, "reduction": "none"})
        if not done:  # whatever is compiled at the first call is no part of its cost
            aside = _accepted(loss, {"generator": torch.Generator(as_parts(scores)[0].device).manual_seed(0)})
            next(_estimates(loss, scores, cost, structure, one, given | aside, 2))
        tallies: dict[str, Tally] = {}
        for estimates, seconds in _estimates(loss, scores, cost, structure, one, given, repetitions):
            for target, values in estimates.items():
                tallies.setdefault(target, Tally(gradient_of(truth[one], target))).add(values, seconds)
        rows += [tally.measurement(target, one, settings) for target, tally in tallies.items()]
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


def _accepted(loss: Callable[..., Tensor], settings: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that the loss's signature names, and that no ``functools.partial`` has fixed."""
    parameters = inspect.signature(loss).parameters.values()
    fixed = loss.keywords if isinstance(loss, functools.partial) else {}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in settings.items() if name not in fixed and (takes_all or name in names)}


def _grid(loss: Callable[..., Tensor], axes: dict[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of what the loss takes; both sides of a negative epsilon are those of a positive one."""
    axes = _accepted(loss, axes)
    seen = []
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        if settings.get("sides") == "both" and "epsilon" in settings:
            settings["epsilon"] = abs(settings["epsilon"])
        if settings not in seen:
            seen.append(settings)
            yield settings


def _estimates(
    loss: Callable[..., Tensor],
    scores: Scores,
    cost: Cost,
    structure: Structure,
    scale: float,
    settings: dict[str, Any],
    repetitions: int,
) -> Iterator[tuple[dict[str, Tensor], float]]:
    """Independent estimates of the gradient to each part of the scores and, where the loss takes a scale, to the scale,
    in portions: (R, -1) each; and the seconds that they took."""
    parts, entries = as_parts(scores), structure.fit(as_parts(scores))[0]
    first = parts[0]
    samples = settings["samples"] if isinstance(settings.get("samples"), int) else 1
    size = min(repetitions, max(1, _CHUNK // (first.numel() * samples)))
    for begin in range(0, repetitions, size):
        count = min(size, repetitions - begin)
        inputs = {}
        for index, (part, own) in enumerate(zip(parts, entries, strict=True)):
            # Each repetition has a part of its own, with as many axes as the entries, so that gradients stay apart.
            alone = part.detach().reshape(*[1] * (len(own) - part.dim()), *part.shape)
            name = f"part {index}" if index else "scores"
            inputs[name] = alone.expand(count, *alone.shape).clone().requires_grad_()
        given, scales = dict(settings), torch.full((count,), scale, dtype=first.dtype, device=first.device)
        if _accepted(loss, {"scale": scale}):
            inputs["scale"] = given["scale"] = scales.requires_grad_()
        leaves = tuple(tensor for name, tensor in inputs.items() if name != "scale")
        start = time.perf_counter()
        value = loss(leaves if len(leaves) > 1 else leaves[0], cost, structure, **given)
        value = _checked(value, count)
        gradients = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
        seconds = time.perf_counter() - start
        estimates = {
            target: (torch.zeros_like(tensor) if gradient is None else gradient).detach().double().reshape(count, -1)
            for (target, tensor), gradient in zip(inputs.items(), gradients, strict=True)
        }
        yield estimates, seconds


def _checked(loss: Any, count: int) -> Tensor:
    """The sum over the instances. Raise ValueError unless it is a differentiable loss of so many."""
    if not isinstance(loss, Tensor) or loss.shape not in ((count,), ()):
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(
            f"the loss returned {got} for {count} instances; expected one for each, ({count},), or their mean"
        )
    if not loss.requires_grad:
        raise ValueError(
            "the loss carries no gradient: it must depend on the scores through differentiable operations or a "
            "torch.autograd.Function (was something detached, or computed under no_grad?)"
        )
    return loss.sum() if loss.dim() else loss * count
