"""Gradients that have no derivative of their own."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from directloss.transforms import inside_transform


class _Once(torch.autograd.Function):
    """The gradient itself, as a function of what it depends on, whose derivative raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "a second derivative was taken through a decision. The first one is an estimate that is constant in the "
            "scores, so that its own derivative would be silently wrong; use create_graph=False"
        )


class _Guard(torch.autograd.Function):
    """A tensor itself, whose gradient has no derivative.

    It keeps nothing: an optimiser may change the tensor in place before the backward pass, which needs it for nothing.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return once((), grads)[0]


class _GuardInTransform(torch.autograd.Function):
    """``_Guard`` for ``torch.func``, which must see the tensor again. Slower: autograd inspects signatures."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return once(ctx.saved_tensors, grads)[0]


def guarded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, for an expression whose other factors are decisions: a second derivative through them raises."""
    if inside_transform():
        return tuple(_GuardInTransform.apply(tensor) for tensor in tensors)
    return tuple(_Guard.apply(tensor) if tensor.requires_grad else tensor for tensor in tensors)


def once(inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients that a backward pass returns. Differentiating them raises, and only that.

    ``inputs`` are what they depend on; where nothing was saved, an empty sequence will do outside of transforms.
    """
    if not torch.is_grad_enabled():
        return list(gradients)
    return [
        None if gradient is None else _Once.apply(gradient if inputs else _leaf(gradient), *inputs)
        for gradient in gradients
    ]


def _leaf(gradient: Tensor) -> Tensor:
    return gradient.detach().requires_grad_()
