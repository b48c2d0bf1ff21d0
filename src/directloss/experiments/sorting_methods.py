"""A step of each method of the sorting experiment: from a stack of repetitions to gradients, and what was seen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from directloss.experiments.methods import call_own
from directloss.experiments.sorting import METHODS, Config
from directloss.layers.sinkhorn import sinkhorn
from directloss.losses.criterion import DirectLoss
from directloss.losses.direct import evaluate_direct
from directloss.noise import Gumbel, Normal
from directloss.structures.matching import Matching

if TYPE_CHECKING:
    from directloss.experiments.sorting_stack import Stack


@dataclass(frozen=True)
class Step:
    """What one step saw, for each repetition."""

    error: Tensor  # (R,), squared error of the noisy training prediction
    right: Tensor  # (T, R), share of rightly placed entries of y, y_eps, ...
    scale: Tensor  # (R,)
    epsilon: Tensor  # (R,), without its sign; that of the better side, where it is found


def take_step(stack: "Stack") -> Step:
    """The gradients of a step of the stack's method, and what was seen."""
    config = stack.config
    if config.method not in METHODS:
        return _own(stack)
    return _sinkhorn(stack) if config.method == "gumbel-sinkhorn" else (_found if config.finds else _direct)(stack)


def _direct(stack: "Stack") -> Step:
    config = stack.config
    scores = stack.net(stack.train)
    scale: float | Tensor = (
        stack.scale_net(stack.train) if config.method == "dsl" else float(config.method == "direct1")
    )
    noise = Gumbel() if config.method == "direct0" else stack.noise(Gumbel(config.noise_variance))
    # Each repetition has its own epsilon: fold its size into the cost, and its sign into the step.
    output = evaluate_direct(
        scores,
        stack.cost * stack.epsilon.value.float()[:, None, None, None],
        Matching(),
        epsilon=1.0 if config.epsilon > 0 else -1.0,
        sides="one" if config.sides == "one" else "both",
        scale=scale,
        noise=noise,
        samples=1 if config.method == "direct0" else config.samples,
        reduction="none",
    )
    # The released program's gradient: y_eps - y, summed over samples and sequences, without 1 / eps.
    y = output.vertices[0]
    (output.loss.sum() * y.slots.shape[1]).backward()
    right = y.at(stack.target)
    stack.epsilon.update(output.informative().any(-1), ~right[0].bool().flatten(2).all(-1).all(0))
    return Step(
        error=y.select(0).inner(stack.squared).mean((0, 2)),
        right=right.mean((1, 3, 4)),
        scale=scale.detach().mean(-1) if isinstance(scale, Tensor) else torch.full((len(stack.train),), scale),
        epsilon=stack.epsilon.value,
    )


def _sinkhorn(stack: "Stack") -> Step:
    config = stack.config
    scores = stack.net(stack.train)
    noise = stack.noise(Gumbel())
    relaxed = sinkhorn(scores + noise, Matching(), config.temperature, config.iterations)
    # Position j receives the mixture sum_i P_ij x_i, which should be the j-th largest number.
    received = torch.einsum("srbij,rbi->srbj", relaxed, stack.train)
    target = stack.train.sort(-1, descending=True).values
    error = (received - target).square().sum(-1).mean((0, 2))
    error.sum().backward()
    right = (relaxed.detach().argmax(-1) == stack.ranks).float().mean((0, 2, 3))
    return Step(error.detach(), right.unsqueeze(0), torch.ones(len(stack.train)), stack.epsilon.value)


def make_criterion(config: Config) -> DirectLoss:
    """An epsilon that finds itself, for one repetition."""
    return DirectLoss(
        Matching(),
        sides=None if config.sides == "each" else config.sides,
        scale=None if config.method == "handsfree" else 0.0,  # where a call gives none
        noise=Normal(config.noise_variance),
        samples=config.samples,
    )


def _found(stack: "Stack") -> Step:
    """An epsilon that finds itself, and a scale that is given, learned, annealed or found as well."""
    scores, method, count = stack.net(stack.train), stack.config.method, len(stack.train)
    given: Any = {"direct0": [0.0] * count, "direct1": [1.0] * count, "handsfree": [None] * count}.get(method)
    scales = stack.scale_net(stack.train)[:, 0].unbind() if given is None else given
    shown = [scale.item() for scale in scales] if given is None else given
    each = zip(stack.criteria, scores, stack.cost, scales, stack.generators, strict=True)
    losses = [criterion(of, cost, scale=scale, generator=drawn) for criterion, of, cost, scale, drawn in each]
    found = [criterion.state() for criterion in stack.criteria]
    ends = [one["epsilon"][0] if stack.config.sides == "each" else one["epsilon"] for one in found]
    used = [one["scale"] if scale is None else float(scale) for one, scale in zip(found, shown, strict=True)]
    return _one_at_a_time(stack, losses, scores, torch.tensor(used), torch.tensor(ends, dtype=torch.float64).abs())


def _own(stack: "Stack") -> Step:
    """The user's own loss."""
    scores = stack.net(stack.train)
    losses = [
        call_own(stack.config.method, each, cost, Matching(), generator)
        for each, cost, generator in zip(scores, stack.cost, stack.generators, strict=True)
    ]
    return _one_at_a_time(stack, losses, scores, torch.zeros(len(losses)), stack.epsilon.value)


def _one_at_a_time(stack: "Stack", losses: list[Tensor], scores: Tensor, scale: Tensor, epsilon: Tensor) -> Step:
    """Losses of one repetition each, judged by what the scores without noise decide."""
    torch.stack(losses).sum().backward()
    columns = Matching().solve(scores.detach()).argmax(-1)
    error = stack.squared.gather(-1, columns.unsqueeze(-1)).squeeze(-1).sum(-1).mean(-1)
    right = (columns == stack.ranks).float().mean((1, 2))
    return Step(error, right.unsqueeze(0), scale, epsilon)
