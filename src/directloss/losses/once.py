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
    """A tensor itself, whose gradient has no derivative. ``keep`` it where a transform must see it again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keep: bool, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        keep, tensor = inputs
        # Elsewhere an optimiser may change it in place before the backward pass, which needs it for nothing.
        ctx.save_for_backward(*([tensor] if keep else []))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *once(ctx.saved_tensors, grads)


def guarded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, for an expression whose other factors are decisions: a second derivative through them raises."""
    keep = inside_transform()
    return tuple(_Guard.apply(keep, tensor) if keep or tensor.requires_grad else tensor for tensor in tensors)


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
