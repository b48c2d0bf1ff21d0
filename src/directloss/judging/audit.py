"""Is my gradient right? A loss's gradients against the exact ones, on an instance small enough to enumerate."""

import functools
import inspect
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from directloss.judging.exact import Exact, Expectation, enumerate_small, exact
from directloss.judging.shown import Shown
from directloss.losses.task import Cost
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, as_parts, fit_cost
from directloss.perturbation import check_samples
from directloss.structures.base import Structure

STEPS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
_CHUNK = 4_000_000
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Measurement:
    """One setting of the loss, for one of its gradients."""

    target: str  # which gradient: "scores", "scale", or "part 1" and so on for the further parts of the scores
    scale: float
    settings: dict[str, Any]  # epsilon, sides, samples: those of them that the loss takes
    repetitions: int
    mean: Tensor  # (*E) or (): of the estimates
    bias: float  # length of mean - exact, less what noise alone would show
    bias_error: float  # its standard error, the exact value's included
    deviation: float  # root mean squared length of estimate - mean: one call's standard deviation
    cosine: float  # mean over calls of the cosine between estimate and exact gradient; 0 for a zero estimate
    signal: float  # mean part along the exact gradient over the root mean squared length; n samples raise it by sqrt(n)
    zero: float  # share of calls whose estimate is zero
    seconds: float  # of one call, forward and backward, in a batch

    @property
    def rule(self) -> str:
        """The loss's sides and the sign of its epsilon."""
        sides, epsilon = self.settings.get("sides"), self.settings.get("epsilon")
        if epsilon is None:
            return "-"
        return "both" if sides == "both" else "one, ε < 0" if epsilon < 0 else "one, ε > 0"


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """What ``audit`` found."""

    structure: str
    exact: dict[float, Exact]  # by scale
    rows: list[Measurement]

    def slopes(self, target: str = "scores") -> dict[tuple[str, float], tuple[float, float]]:
        """The order of the bias in epsilon, and its standard error, by rule and scale. NaN where it cannot be told.

        ``log bias = log a + p log(epsilon) + q epsilon^r`` is fitted to the epsilons whose bias is above twice its
        error and below a quarter of the exact gradient, up to where it falls again; p is the order, and the last
        term, with r = 1 for one side and 2 for both, is the next order, which would tilt p where epsilon is not
        small. The error is that of the noise alone.
        """
        groups: dict[tuple[str, float], list[Measurement]] = {}
        for row in self.rows:
            if row.target == target and row.rule != "-" and row.scale > 0:
                groups.setdefault((row.rule, row.scale), []).append(row)
        return {group: self._slope(rows) for group, rows in groups.items()}

    def _slope(self, rows: Sequence[Measurement]) -> tuple[float, float]:
        largest = _gradient(self.exact[rows[0].scale], rows[0].target).value.norm().item() / 4
        rows = list(_rising([row for row in rows if row.bias > 2 * row.bias_error], largest))
        size = torch.tensor([abs(row.settings["epsilon"]) for row in rows], dtype=torch.float64)
        if len(size.unique()) < 3:
            return math.nan, math.nan
        bias = torch.tensor([[row.bias, row.bias_error] for row in rows], dtype=torch.float64)
        weight = bias[:, :1] / bias[:, 1:]  # the inverse standard error of log bias
        power = 2 if rows[0].rule == "both" else 1
        terms = weight * torch.stack([torch.ones_like(size), size.log(), size**power], 1)
        covariance = torch.linalg.inv(terms.mT @ terms)
        fit = covariance @ terms.mT @ (weight * bias[:, :1].log())
        return fit[1].item(), covariance[1, 1].sqrt().item()

    def best(self, scale: float, target: str = "scores", overhead: float = 0.0) -> Measurement:
        """The setting with the most signal for its cost: the highest ``signal / sqrt(seconds + overhead)``.

        Averaging over n calls raises a small signal by sqrt(n) and the cost by n, so this figure does not reward
        samples for their own sake. ``overhead`` is what the rest of a training step costs, for one instance: with
        an expensive network more samples pay.
        """
        rows = [row for row in self.rows if row.target == target and row.scale == scale]
        if not rows:
            raise ValueError(f"no row for the {target} at scale {scale}; audited were {sorted(self.exact)}")
        worth = [row.signal / math.sqrt(row.seconds + overhead) for row in rows]
        return rows[max(range(len(rows)), key=lambda index: (not math.isnan(worth[index]), worth[index]))]


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
    """Measure a loss, as an loss of the gradient of ``E[<cost, y>]``, against the exact gradient.

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
    points = 1 << max(15, (repetitions // 64).bit_length())
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
        tallies: dict[str, _Tally] = {}
        for estimates, seconds in _estimates(loss, scores, cost, structure, one, given, repetitions):
            for target, values in estimates.items():
                tallies.setdefault(target, _Tally(_gradient(truth[one], target))).add(values, seconds)
        rows += [tally.measurement(target, one, settings) for target, tally in tallies.items()]
    on_progress(len(grid), len(grid))
    return Audit(repr(structure), truth, rows)


def _rising(rows: Sequence[Measurement], largest: float) -> Iterator[Measurement]:
    """Those whose bias is small, before it turns around."""
    highest = 0.0
    for row in sorted(rows, key=lambda row: abs(row.settings["epsilon"])):
        if row.bias + 2 * row.bias_error < highest:
            return
        highest = max(highest, row.bias)
        if row.bias < largest:
            yield row


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


def _gradient(truth: Exact, target: str) -> Expectation:
    if target.startswith("part"):
        return truth.to_factors[int(target.split()[1]) - 1]
    return truth.to_scores if target == "scores" else truth.to_scale


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


class _Tally:
    """Sums over the estimates of one gradient, from which everything about them follows."""

    def __init__(self, known: Expectation):
        self.known = known
        self.value = known.value.flatten()
        self.count, self.zeros, self.cosines, self.seconds = 0, 0, 0.0, 0.0
        self.total, self.squares = torch.zeros_like(self.value), torch.zeros_like(self.value)

    def add(self, estimates: Tensor, seconds: float) -> None:
        """Independent estimates, (R, -1), and what they took together."""
        estimates = estimates.to(self.value.device)
        lengths = estimates.norm(dim=1)
        cosines = estimates @ self.value / (lengths * self.value.norm()).clamp_min(_TINY)
        self.count += len(estimates)
        self.zeros += int((lengths == 0).sum())
        self.cosines += cosines.sum().item()
        self.seconds += seconds
        self.total += estimates.sum(0)
        self.squares += estimates.square().sum(0)

    def measurement(self, target: str, scale: float, settings: dict[str, Any]) -> Measurement:
        mean = self.total / self.count
        variance = (self.squares - self.total * mean).clamp_min(0) / (self.count - 1)
        noise = (variance / self.count + self.known.error.flatten() ** 2).sum()
        length = (self.squares.sum() / self.count).sqrt()  # root mean squared
        return Measurement(
            target=target,
            scale=scale,
            settings=settings,
            repetitions=self.count,
            mean=mean.reshape(self.known.value.shape),
            bias=((mean - self.value).square().sum() - noise).clamp_min(0).sqrt().item(),
            bias_error=noise.sqrt().item(),
            deviation=variance.sum().sqrt().item(),
            cosine=self.cosines / self.count,
            signal=(mean @ self.value / (length * self.value.norm()).clamp_min(_TINY)).item(),
            zero=self.zeros / self.count,
            seconds=self.seconds / self.count,
        )
