"""Direct loss minimisation through randomly perturbed structured predictors: the paper.

For scores ``mu``, scale ``sigma``, noise ``gamma`` and a task loss that is linear in the structure,
``loss(y) = const + <cost, y>``, let

    theta = mu + sigma * gamma
    y     = argmax_y <theta, y>
    y_eps = argmax_y <theta + eps * cost, y>            on the same noise.

Then (corollary 2)

    d E[loss(y)] / d theta = lim_{eps -> 0} E[(y_eps - y) / eps],

and the chain rule carries it to the scores (equation 16: times d theta / d mu = 1) and to the scale (equation 17: times
d theta / d sigma = gamma). ``sigma = 0`` is direct loss minimisation (McAllester et al. 2010), ``sigma = 1`` is
Lorberbom et al. 2018, a learned ``sigma`` is Direct Stochastic Learning. ``sides="both"`` is the central difference
``(y_{+eps} - y_{-eps}) / (2 eps)`` of the same derivative, with a bias of second order in eps.

A task loss that is not linear is taken at y: its gradient there is the cost, or the user's own loss-augmented maximiser
returns y_eps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from directloss.losses.epsilon import check_epsilon, check_epsilons
from directloss.losses.once import once
from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.losses.task import Augmented, Cost, augmented_vertices, task_loss
from directloss.noise import Gumbel, Noise
from directloss.parts import Layout, Scores, Vertices, as_parts, fit_cost, pack
from directloss.perturbation import Scale, check_noise, check_samples, check_scale, draw, fit_scale
from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_transform

Sides = Literal["one", "both"]


class _Found(NamedTuple):
    """The loss (B...) and the vertices (T, S, B..., K) of each part, which a gradient is made of."""

    loss: Tensor
    vertices: tuple[Vertices, ...]


@dataclass
class _Rule:
    """What a call does besides its tensors."""

    structure: Structure
    steps: tuple[float, ...]  # of y, of the solution ahead and, with both sides, of the one behind
    width: float  # between the two ends of the difference, in units of epsilon where that is a tensor
    entries: tuple[torch.Size, ...]  # of each part of the scores
    learns_scale: bool
    found: _Found | None = None
    layout: Layout | None = None  # of the vertices, once they are known

    @property
    def parts(self) -> int:
        """How many tensors the scores are."""
        return len(self.entries)

    def gradients(
        self,
        grad: Tensor,
        instances: int,
        vertices: tuple[Vertices, ...],
        drawn: Tensor | None,
        epsilon: Tensor | None,
        parts: Sequence[tuple[torch.Size, torch.dtype]],
        scale_shape: torch.Size,
    ) -> list[Tensor | None]:
        """Equations 16 and 17: ``(y_ahead - y_behind) / width`` for each part, and times the noise for the scale.

        ``grad`` is that of the loss of an instance, (B...), or of the mean over so many ``instances``, ().
        """
        dtype = torch.promote_types(grad.dtype, torch.float32)
        count, inverse = max(1, instances * vertices[0].slots.shape[1]), 1 / self.width
        # Where 1 / width overflows, what has no difference still has no gradient.
        safe = epsilon is None and abs(inverse) <= torch.finfo(dtype).max
        factor = grad.to(dtype) * (inverse / count if safe else 1 / count)
        if epsilon is not None:
            factor = factor / epsilon

        def finished(total: Tensor, by: Tensor | None, to: torch.dtype) -> Tensor:
            result = total if by is None else total * by
            result = result if safe else torch.where(total == 0, 0.0, result * inverse)
            return result if result.dtype == to else result.to(to)

        per_entry = factor[(..., *[None] * self.structure.entry_dims)] if factor.dim() else factor
        first = vertices[0]
        gradients: list[Tensor | None] = [
            None,
            finished(first.difference(self.ends, parts[0][0], dtype), per_entry, parts[0][1]),
        ]
        if len(parts) == 1 and drawn is None:
            return gradients
        per_slot = factor.unsqueeze(-1)
        # A factor, or the scale, may be shared by instances whose factors differ.
        for v, (shape, kept) in zip(vertices[1:], parts[1:], strict=True):
            gradients.append(finished(v.difference(self.ends, shape, dtype, (per_slot, per_slot)), None, kept))
        if drawn is not None:
            differs = first.select(self.ends[0]).unequal(first.select(self.ends[1]))
            ahead, behind = drawn.to(dtype) * (differs * per_slot)
            total = first.difference(self.ends, scale_shape, dtype, (ahead, behind))
            gradients[0] = finished(total, None, parts[0][1])
        return gradients

    @property
    def ends(self) -> tuple[int, int]:
        """The steps between which the difference is formed."""
        return (1, 2) if len(self.steps) == 3 else (1, 0)

    def drawn(self, vertices: tuple[Vertices, ...], noise: Tensor | None) -> list[Tensor]:
        """The noise where the solutions ahead and behind are not zero, (2, S, B..., K), if the scale learns from it."""
        if not self.learns_scale or noise is None:
            return []
        return [torch.stack([vertices[0].select(end).at(noise) for end in self.ends])]


class _Direct(torch.autograd.Function):
    """The mean over samples and instances of ``<cost, y>``, with the rule's gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        rule: _Rule,
        found: _Found,
        reduction: Reduction,
        scale: Tensor | None,
        noise: Tensor | None,
        epsilon: Tensor | None,
        *parts: Tensor,
    ) -> Tensor:
        # What is kept is neither input nor output, so that no reference closes a circle.
        ctx.vertices, ctx.drawn = found.vertices, rule.drawn(found.vertices, noise)
        ctx.rule, ctx.reduction, ctx.epsilon = rule, reduction, epsilon
        ctx.parts = [(part.shape, part.dtype) for part in parts]
        ctx.scale_shape = None if scale is None else scale.shape
        return reduce(found.loss, reduction)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        vertices = ctx.vertices
        instances = math.prod(vertices[0].slots.shape[2:-1]) if ctx.reduction == "mean" else 1
        drawn = ctx.drawn[0] if ctx.drawn else None
        gradients = ctx.rule.gradients(grads[0], instances, vertices, drawn, ctx.epsilon, ctx.parts, ctx.scale_shape)
        to_scale, *to_parts = once((), gradients)
        return None, None, None, to_scale, None, None, *to_parts


class _DirectInTransform(torch.autograd.Function):
    """``_Direct`` for ``torch.func``, which must see all that is solved for as tensors: (B...) and the vertices.

    Tensors: scale, with as many axes as the scores, and noise (S, B..., *E), or None; the cost; epsilon (B...), or None;
    then the parts of the scores, and the data of the structure. Slower: autograd inspects the signature at every call.
    """

    @staticmethod
    def forward(
        rule: _Rule,
        scale: Tensor | None,
        noise: Tensor | None,
        cost: Tensor,
        epsilon: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        loss, vertices = _solve(rule, scale, noise, cost, epsilon, tensors)
        rule.layout = Layout.of(vertices)
        return loss, *pack(vertices), *rule.drawn(vertices, noise)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.rule, scale, noise, _, epsilon, *tensors = inputs
        ctx.parts = [(part.shape, part.dtype) for part in tensors[: ctx.rule.parts]]
        ctx.scale_shape = None if scale is None else scale.shape
        ctx.data, ctx.has_noise, ctx.has_epsilon = len(tensors) - ctx.rule.parts, noise is not None, epsilon is not None
        # A second derivative, which must raise, meets what the gradient depends on.
        depends = [tensor for tensor in (scale, *tensors) if tensor is not None and tensor.is_floating_point()]
        ctx.depends = len(depends)
        ctx.save_for_backward(*depends, *output[1:], *([] if epsilon is None else [epsilon]))
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        rule, saved = ctx.rule, list(ctx.saved_tensors)
        depends, saved = saved[: ctx.depends], saved[ctx.depends :]
        epsilon = saved.pop() if ctx.has_epsilon else None
        drawn = saved.pop() if rule.learns_scale and ctx.has_noise else None
        gradients = rule.gradients(grads[0], 1, rule.layout.unpack(saved), drawn, epsilon, ctx.parts, ctx.scale_shape)
        to_scale, *to_parts = once(depends, gradients)
        return None, to_scale, None, None, None, *to_parts, *[None] * ctx.data

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], rule: _Rule, *inputs: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        # A structure takes any number of batch axes, so vmap's is one more: before the batch, after the samples.
        # What vmap does not map needs no axis: everything broadcasts from the right.
        scale, noise, cost, epsilon, first, *rest = inputs
        dims = in_dims[1:]
        axes = first.dim() - (dims[4] is not None)  # of the scores of one instance of vmap
        batch = axes - rule.structure.entry_dims

        def lead(tensor: Tensor | None, dim: int | None, wanted: int) -> Tensor | None:
            if tensor is None or dim is None:
                return tensor
            tensor = tensor.movedim(dim, 0)
            return tensor.reshape(len(tensor), *[1] * (wanted + 1 - tensor.dim()), *tensor.shape[1:])

        if dims[4] is None:
            first = first.unsqueeze(0).expand(info.batch_size, *first.shape)
        else:
            first = first.movedim(dims[4], 0)
        if noise is not None:
            noise = noise.unsqueeze(1) if dims[1] is None else noise.movedim(dims[1], 1)
        own = [*map(len, rule.entries[1:]), *rule.structure.tensor_dims()]
        rest = [lead(tensor, dim, batch + entries) for tensor, dim, entries in zip(rest, dims[5:], own, strict=True)]
        scale, cost, epsilon = lead(scale, dims[0], axes), lead(cost, dims[2], axes), lead(epsilon, dims[3], batch)
        output = _DirectInTransform.apply(rule, scale, noise, cost, epsilon, first, *rest)
        # Steps and samples lead the vertices; ends and samples lead the noise at them.
        return output, (0, *[2] * (len(output) - 1))


def _solve(
    rule: _Rule,
    scale: Tensor | None,
    noise: Tensor | None,
    cost: Tensor,
    epsilon: Tensor | None,
    tensors: tuple[Tensor, ...],
) -> _Found:
    """y and the solutions ahead and behind, and the loss of y."""
    first, *factors = tensors[: rule.parts]
    structure, along = rule.structure, cost
    if len(tensors) > rule.parts:
        structure = structure.with_tensors(tensors[rule.parts :])
    if epsilon is not None:
        along = cost * epsilon[(..., *[None] * structure.entry_dims)]
    theta = (_perturbed(first, scale, noise), *factors)
    vertices = structure.maximize(theta, rule.entries, along, rule.steps)
    loss = _mean_over_samples(vertices[0].select(0).inner(cost))
    return _Found(loss if loss.dtype == first.dtype else loss.to(first.dtype), vertices)


def _mean_over_samples(loss: Tensor) -> Tensor:
    return loss[0] if len(loss) == 1 else loss.mean(0)


def _perturbed(scores: Tensor, scale: Tensor | None, noise: Tensor | None) -> Tensor:
    if scale is None or noise is None:
        return scores.unsqueeze(0)
    check_scale(scale)
    return torch.addcmul(scores, scale, noise)


class DirectOutput(NamedTuple):
    """Everything one evaluation of the rule gives."""

    loss: Tensor  # (B...) or (), differentiable
    vertices: tuple[
        Vertices, ...
    ]  # of each part, (T, S, B..., K): y, and where gradients were wanted those ahead and behind

    def informative(self) -> Tensor:
        """Whether some sample gives a difference, (B...)."""
        first = self.vertices[0]
        steps = len(first.slots)
        return first.select(min(1, steps - 1)).differs(first.select(2 if steps == 3 else 0)).any(0)


def evaluate_direct(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: float | Tensor,
    sides: Sides = "one",
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    augmented: Augmented | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
) -> DirectOutput:
    """The rule itself, with what diagnostics need. ``direct_loss`` and ``DirectLoss`` are made of it."""
    check_structure_type(structure)
    check_reduction(reduction)
    if sides not in ("one", "both"):
        raise ValueError(f"sides is {sides!r}, expected 'one' (the paper's rule) or 'both' (central difference)")
    parts = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(parts)
    structure, first = structure.for_batch(len(batch)), parts[0]
    each: Tensor | None = None
    if isinstance(epsilon, Tensor) and epsilon.dim():
        each, step = epsilon.detach().to(first), 1.0
        check_epsilons(each, batch)
    else:
        step = check_epsilon(epsilon)
    steps, width = ((0.0, step), step) if sides == "one" else ((0.0, step, -step), 2 * step)
    sigma, gamma = _scale_and_noise(scale, noise, samples, first, batch, structure, generator)
    transform = inside_transform()
    learns_scale = sigma is not None and (sigma.requires_grad or transform)
    if not transform and not (torch.is_grad_enabled() and (learns_scale or any(part.requires_grad for part in parts))):
        steps = (0.0,)
    rule = _Rule(structure, steps, width, entries, learns_scale)
    if isinstance(cost, Tensor):
        if augmented is not None:
            raise ValueError(
                "augmented goes with a cost that is a function; coefficients need no maximiser of their own"
            )
        coefficients = fit_cost(cost, first)
        if transform:
            inputs = (rule, sigma, gamma, coefficients, each, *parts, *structure.tensors())
            loss, *tensors = _DirectInTransform.apply(*inputs)
            assert rule.layout is not None
            return DirectOutput(reduce(loss, reduction), rule.layout.unpack(tensors))
        with torch.no_grad():
            found = _solve(rule, sigma, gamma, coefficients, each, parts)
    else:
        found = _solve_task(rule, sigma, gamma, cost, augmented, each, parts, batch)
    if len(steps) == 1:
        return DirectOutput(reduce(found.loss, reduction), found.vertices)
    loss = _Direct.apply(rule, found, reduction, sigma, gamma, each, *parts)
    return DirectOutput(loss, found.vertices)


def _scale_and_noise(
    scale: Scale,
    noise: Noise | Tensor,
    samples: int,
    first: Tensor,
    batch: torch.Size,
    structure: Structure,
    generator: torch.Generator | None,
) -> tuple[Tensor | None, Tensor | None]:
    check_noise(noise)
    samples = check_samples(samples)
    if isinstance(scale, Tensor) or scale:
        if structure.nonpositive:
            raise ValueError(
                f"{structure!r} takes no positive scores, which additive noise makes; perturb the scores yourself, with "
                "dl.perturb(scores, ..., multiplicative=True), and leave scale at 0"
            )
        sigma = fit_scale(scale, first, batch)
        return sigma, draw(noise, samples, first, generator)
    if scale is None:
        raise TypeError("scale is None, expected a number or a tensor")
    if samples > 1:
        raise ValueError(f"samples is {samples}, but without noise all samples are one; give a scale, e.g. scale=1.0")
    return None, None


def _solve_task(
    rule: _Rule,
    scale: Tensor | None,
    noise: Tensor | None,
    cost: Callable[[Tensor], Tensor],
    augmented: Augmented | None,
    epsilon: Tensor | None,
    parts: tuple[Tensor, ...],
    batch: torch.Size,
) -> _Found:
    """The loss of y, and the solutions ahead and behind, where the task loss is a function."""
    if not callable(cost):
        raise TypeError(f"cost is {type(cost).__name__}, expected a tensor, or a function of the structure")
    if inside_transform():
        raise ValueError(
            "a cost that is a function cannot be used inside torch.func; give its coefficients as a tensor"
        )
    with torch.no_grad():
        theta = (_perturbed(parts[0], scale, noise), *parts[1:])
        y = rule.structure.vertices_along(theta, None, (0.0,))
        dense = y[0].select(0).dense(parts[0].dtype)
        loss, gradient = task_loss(cost, dense, batch)
        if len(rule.steps) == 1:
            return _Found(loss.mean(0), y)
        if augmented is not None:
            steps = [step if epsilon is None else step * epsilon for step in rule.steps[1:]]
            return _Found(loss.mean(0), augmented_vertices(augmented, cost, rule.structure, theta, steps, dense, loss))
        if gradient is None:
            if not dense.numel():
                gradient = torch.zeros_like(dense)
            else:
                raise ValueError(
                    "cost is a function whose result carries no gradient, so that it cannot be linearised at y; compute "
                    "it by differentiable operations, or pass augmented=, your own maximiser of "
                    "<theta, y> + epsilon * cost(y)"
                )
        if epsilon is not None:
            gradient = gradient * epsilon[(..., *[None] * rule.structure.entry_dims)]
        return _Found(loss.mean(0), rule.structure.vertices_along(theta, gradient, rule.steps))


_evaluate_uncompiled = torch.compiler.disable(evaluate_direct)


@overload
def direct_loss(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: float | Tensor,
    sides: Sides = ...,
    scale: Scale = ...,
    noise: Noise | Tensor = ...,
    samples: int = ...,
    augmented: Augmented | None = ...,
    generator: torch.Generator | None = ...,
    reduction: Reduction = ...,
    return_structure: Literal[False] = ...,
) -> Tensor: ...


@overload
def direct_loss(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: float | Tensor,
    sides: Sides = ...,
    scale: Scale = ...,
    noise: Noise | Tensor = ...,
    samples: int = ...,
    augmented: Augmented | None = ...,
    generator: torch.Generator | None = ...,
    reduction: Reduction = ...,
    return_structure: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def direct_loss(
    scores: Scores,
    cost: Cost,
    structure: Structure,
    *,
    epsilon: float | Tensor,
    sides: Sides = "one",
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    augmented: Augmented | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The expected task loss ``E[<cost, y>]`` of a randomly perturbed structured predictor, differentiable.

    Where no gradient is wanted the structure is solved for once, otherwise two or three times.

    Args:
        scores: (B..., *E), from your network, or a tuple of parts.
        cost: linear coefficients of the task loss, broadcasting to the scores (``dl.costs`` makes them); or a function
            of structures (B..., *E) to losses (B...), which is linearised at y.
        structure: what is predicted.
        epsilon: how far the augmented maximiser looks; not 0; a number, or one for each instance (B...). Negative pulls
            towards better structures, positive pushes away from worse ones.
        sides: "one" is the paper's rule, "both" the central difference.
        scale: of the noise: a number, one for each instance (B...), or one for each entry. 0 draws no noise.
        noise: what is drawn, or the draws themselves, (samples, B..., *E), to share them between calls.
        samples: draws for each instance (with given draws, leave it out).
        augmented: for a cost that is a function and carries no gradient: ``augmented(theta, epsilon)`` returns the
            maximiser of ``<theta, y> + epsilon * cost(y)``, for both signs of epsilon.
        generator: the only source of randomness (None: torch's default generator).
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the structures predicted under the noise, (samples, B..., *E).

    Returns:
        The loss; its gradient reaches every part of ``scores`` and a ``scale`` that requires one.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.0, 2.0, 1.0]], requires_grad=True)
        >>> loss = dl.direct_loss(scores, torch.tensor([[1.0, 1.0, 0.0]]), dl.Choice(), epsilon=-2.0)
        >>> loss.backward()
        >>> loss.item(), scores.grad
        (1.0, tensor([[ 0.0000,  0.5000, -0.5000]]))
    """
    evaluate = _evaluate_uncompiled if torch.compiler.is_compiling() else evaluate_direct
    output = evaluate(
        scores,
        cost,
        structure,
        epsilon=epsilon,
        sides=sides,
        scale=scale,
        noise=noise,
        samples=samples,
        augmented=augmented,
        generator=generator,
        reduction=reduction,
    )
    return (
        (output.loss, output.vertices[0].select(0).dense(as_parts(scores)[0].dtype))
        if return_structure
        else output.loss
    )
