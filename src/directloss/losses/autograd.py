"""How the rule's gradients enter autograd. The rule itself, the paper's equations, is in ``direct``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from directloss.layout import Layout, pack
from directloss.losses.once import once
from directloss.perturbation import perturbed

if TYPE_CHECKING:
    from directloss.losses.direct import Found, Rule


class Attach(torch.autograd.Function):
    """The mean over samples and instances of ``<cost, y>``, with the rule's gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        solved: "tuple[Rule, Found, Tensor | None, Tensor | None]",
        scale: Tensor | None,
        *parts: Tensor,
    ) -> Tensor:
        rule, found, noise, epsilon = solved  # in one tuple, because autograd looks at every argument
        # What is kept is neither input nor output, so that no reference closes a circle.
        ctx.vertices, ctx.drawn = found.vertices, rule.drawn(found.vertices, noise)
        ctx.rule, ctx.epsilon = rule, epsilon
        ctx.parts = [(part.shape, part.dtype) for part in parts]
        ctx.scale_shape = None if scale is None else scale.shape
        return found.loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        drawn = ctx.drawn[0] if ctx.drawn else None
        gradients = ctx.rule.gradients(grads[0], ctx.vertices, drawn, ctx.epsilon, ctx.parts, ctx.scale_shape)
        to_scale, *to_parts = once((), gradients)
        return None, to_scale, *to_parts


class AttachInTransform(torch.autograd.Function):
    """``Attach`` for ``torch.func``, which must see all that is solved for as tensors: (B...) and the vertices.

    Tensors: scale, with as many axes as the scores, and noise (S, B..., *E), or None; the cost; epsilon (B...), or
    None; then the parts of the scores, and the data of the structure. Slower: autograd inspects signatures each time.
    """

    @staticmethod
    def forward(
        rule: "Rule",
        scale: Tensor | None,
        noise: Tensor | None,
        cost: Tensor,
        epsilon: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        first, *factors = tensors[: rule.parts]
        theta, data = (perturbed(first, scale, noise), *factors), tensors[rule.parts :]
        solver = replace(rule, structure=rule.structure.with_tensors(data)) if data else rule
        loss, vertices = solver.solve(theta, cost, epsilon)
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
        gradients = rule.gradients(grads[0], rule.layout.unpack(saved), drawn, epsilon, ctx.parts, ctx.scale_shape)
        to_scale, *to_parts = once(depends, gradients)
        return None, to_scale, None, None, None, *to_parts, *[None] * ctx.data

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], rule: "Rule", *inputs: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        # A structure takes any number of batch axes, so vmap's is one more: before the batch, after the samples.
        # What vmap does not map needs no axis: everything broadcasts from the right.
        scale, noise, cost, epsilon, first, *rest = inputs
        dims = in_dims[1:]
        axes = first.dim() - (dims[4] is not None)  # of the scores of one instance of vmap
        batch = axes - rule.structure.entry_dims

        if dims[4] is None:
            first = first.unsqueeze(0).expand(info.batch_size, *first.shape)
        else:
            first = first.movedim(dims[4], 0)
        if noise is not None:
            noise = noise.unsqueeze(1) if dims[1] is None else noise.movedim(dims[1], 1)
        own = [*map(len, rule.entries[1:]), *rule.structure.tensor_dims()]
        rest = [lead(tensor, dim, batch + entries) for tensor, dim, entries in zip(rest, dims[5:], own, strict=True)]
        scale, cost, epsilon = lead(scale, dims[0], axes), lead(cost, dims[2], axes), lead(epsilon, dims[3], batch)
        output = AttachInTransform.apply(rule, scale, noise, cost, epsilon, first, *rest)
        # Steps and samples lead the vertices; ends and samples lead the noise at them.
        return output, (0, *[2] * (len(output) - 1))


def lead(tensor: Tensor | None, dim: int | None, wanted: int) -> Tensor | None:
    """A tensor with vmap's axis before as many others as are wanted; as it is where vmap does not map it."""
    if tensor is None or dim is None:
        return tensor
    tensor = tensor.movedim(dim, 0)
    return tensor.reshape(len(tensor), *[1] * (wanted + 1 - tensor.dim()), *tensor.shape[1:])
