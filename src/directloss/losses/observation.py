"""What a training step shows about its own settings."""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed

from directloss.losses.direct import DirectOutput
from directloss.losses.shares import Seen
from directloss.losses.task import Augmented, Cost, task_loss
from directloss.parts import Scores, Vertices, as_parts, fit_cost
from directloss.perturbation import Scale
from directloss.structures.base import Structure


def units(scores: Scores, cost: Cost, scale: Scale | None) -> tuple[float, float]:
    """How large scores, or their noise where its scale is given, and costs are: a mean, and standard deviations.

    A cost that is a function has no unit of its own; 1 stands for it.
    """
    first = as_parts(scores)[0]
    given = torch.zeros(1) if scale is None else torch.as_tensor(scale)
    sizes = [_moments(tensor) for tensor in (first, cost if isinstance(cost, Tensor) else first, given)]
    of_scores, of_cost, of_scale = _summed(torch.stack(sizes)).reshape(3, 3).tolist()
    mean_scale = of_scale[1] / max(of_scale[0], 1)
    return mean_scale or _deviation(*of_scores), _deviation(*of_cost) if isinstance(cost, Tensor) else 1.0


def observe(
    output: DirectOutput,
    scores: Scores,
    cost: Cost,
    structure: Structure,
    augmented: Augmented | None,
    with_scale: bool,
) -> Seen:
    """The sums that ``Shares`` judges by; zeros for those of the scale where it is given."""
    parts = tuple(_wide(part.detach()) for part in structure.expanded(as_parts(scores)))
    losses = _losses(output.vertices[0], cost, parts[0]).mean(1)  # (T, B...)
    plus, minus = (1, 2) if len(losses) == 3 else (0, 1)
    ends = (-1.0, 1.0) if with_scale or plus else (-1.0,)  # without noise, the better side alone needs no worst
    extremes = _extremes(cost, structure, parts, augmented, ends)
    lowest, highest = _losses(extremes[0], cost, parts[0])[[0, -1]]
    sums = [losses[0] - lowest, losses[0] - losses[minus], losses[plus] - losses[0], highest - lowest]
    if with_scale:
        plain = structure.vertices_along(parts, None, (0.0,))
        value = _value(plain, parts)[0]
        sums += [
            value - _value(output.vertices, parts)[0].mean(0),
            value - _value(extremes, parts)[1],
            _losses(plain[0], cost, parts[0])[0] - lowest,
        ]
    totals = _summed(torch.stack([each.double().sum() for each in sums])).tolist()
    return Seen(*totals, *[0.0] * (len(Seen._fields) - len(totals)))


def above_smallest(output: DirectOutput, scores: Scores, cost: Cost, structure: Structure) -> Tensor:
    """Whether an instance's loss is above the smallest that its structures allow, (B...).

    Compared with the best structure, not with zero: ``<cost, y>`` lacks the loss's constant. A function has no such
    structure; it is compared with zero.
    """
    parts = as_parts(scores)
    loss = _losses(output.vertices[0].select(0), cost, parts[0]).mean(0)
    if not isinstance(cost, Tensor):
        return loss > 0
    best = _extremes(cost, structure, parts, None, (-1.0,))
    smallest = _losses(best[0], cost, parts[0])[0]
    return loss > smallest + 1e-6 * (1 + smallest.abs())


def _extremes(
    cost: Cost, structure: Structure, parts: Sequence[Tensor], augmented: Augmented | None, steps: Sequence[float]
) -> tuple[Vertices, ...]:
    """The structures that maximise steps times the cost: -1 stands for the best, 1 for the worst. (T, B..., K)."""
    nothing = tuple(torch.zeros_like(part) for part in parts)
    if isinstance(cost, Tensor):
        return structure.vertices_along(nothing, fit_cost(cost, parts[0]), steps)
    if augmented is not None:
        given = nothing if len(nothing) > 1 else nothing[0]
        answers = torch.stack([augmented(given, step).to(nothing[0]) for step in steps])
        return structure.complete(answers, (answers, *nothing[1:]))
    # Linearised at no structure at all: what the function says of each entry by itself.
    coefficients = torch.autograd.functional.jacobian(lambda y: cost(y).sum(), nothing[0])
    return structure.vertices_along(nothing, coefficients, steps)


def _losses(vertices: Vertices, cost: Cost, like: Tensor) -> Tensor:
    """Of structures (..., B..., K), with one or two axes before the batch."""
    if isinstance(cost, Tensor):
        return vertices.inner(_wide(fit_cost(cost, like)))
    y = vertices.dense(like.dtype)
    each = y.reshape(-1, *like.shape)
    values = task_loss(cost, each, torch.Size(vertices.slots.shape[-1 - _batch_dims(vertices, like) : -1]))[0]
    return values.reshape(vertices.slots.shape[:-1])


def _batch_dims(vertices: Vertices, like: Tensor) -> int:
    return like.dim() - len(vertices.entries)


def _value(vertices: Sequence[Vertices], parts: Sequence[Tensor]) -> Tensor:
    """``<scores, y>`` over all parts."""
    return torch.stack([found.inner(part) for found, part in zip(vertices, parts, strict=True)]).sum(0)


def _wide(tensor: Tensor) -> Tensor:
    """Sums over a batch need more than half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _moments(tensor: Tensor) -> Tensor:
    """How many, their sum, and the sum of their squares."""
    numbers = tensor.detach().double().flatten()
    return torch.stack([torch.full_like(numbers.sum(), numbers.numel()), numbers.sum(), numbers.square().sum()])


def _deviation(count: float, total: float, squares: float) -> float:
    variance = squares / count - (total / count) ** 2 if count > 1 else 0.0
    # A constant has none, whatever its rounding.
    return variance**0.5 if variance > 1e-12 * squares / max(count, 1) else 0.0


def _summed(sums: Tensor) -> Tensor:
    """Over all processes, so that all of them find the same."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(sums)
    return sums
