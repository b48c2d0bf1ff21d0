"""Gradients that have no derivative of their own."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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
