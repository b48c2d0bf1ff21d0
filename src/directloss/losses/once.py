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
    """Tensors themselves, whose gradients have no derivative. ``keep`` them where a transform must see them again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keep: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        keep, *tensors = inputs
        # Elsewhere an optimiser may change them in place before the backward pass, which needs them for nothing.
        ctx.save_for_backward(*(tensors if keep else ()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *once(ctx.saved_tensors, grads)


def guarded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, for an expression whose other factors are decisions: a second derivative through them raises."""
    return _Guard.apply(inside_transform(), *tensors)  # type: ignore[no-any-return]


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
