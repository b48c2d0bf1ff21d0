"""What layers made of maximisers share: the mean of the maximisers, with a gradient of their own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from directloss.layout import Layout, pack
from directloss.losses.once import once
from directloss.losses.sampling import scale_and_noise
from directloss.losses.solving import Tensors, solved
from directloss.noise import Gumbel, Noise
from directloss.parts import Scores, Vertices, as_parts
from directloss.perturbation import Scale, perturbed
from directloss.structures.base import Structure, check_structure_type


@dataclass
class Rule(ABC):
    """A layer without its tensors: the mean of the maximisers over the samples, with a gradient of its own."""

    structure: Structure
    entries: tuple[torch.Size, ...]  # of each part of the scores
    layout: Layout | None = None  # of the vertices, once they are known

    @abstractmethod
    def gradients(
        self, grad: Tensor, scale: Tensor | None, noise: Tensor | None, parts: Tensors, vertices: tuple[Vertices, ...]
    ) -> list[Tensor | None]:
        """To the scale and to each part, given that to the value, (B..., *E), and the maximisers, (S, B..., K)."""

    def solve(self, parts: Sequence[Tensor]) -> tuple[Vertices, ...]:
        """The maximisers, (..., K) for each part."""
        return solved(self.structure, self.entries, parts)[0]


def decide(
    make: Callable[[Structure, tuple[torch.Size, ...]], Rule],
    scores: Scores,
    structure: Structure,
    scale: Scale = 0.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The mean of the maximisers of perturbed scores, (B..., *E), with a rule's gradient to scores and scale."""
    check_structure_type(structure)
    parts = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(parts)
    structure = structure.for_batch(len(batch))
    rule = make(structure, entries)
    sigma, gamma = scale_and_noise(scale, noise, samples, parts[0], structure, generator)
    theta = perturbed(parts[0], sigma, gamma).detach()
    vertices = rule.solve((theta, *(factor.detach() for factor in parts[1:])))
    rule.layout = Layout.of(vertices)
    y: Tensor = _Decide.apply(rule, sigma, gamma, *parts, *pack(vertices))
    return y


class _Decide(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(rule: Rule, scale: Tensor | None, noise: Tensor | None, *tensors: Tensor) -> Tensor:
        first, vertices = tensors[0], _vertices(rule, tensors)
        wide = torch.promote_types(first.dtype, torch.float32)
        return (vertices[0].sum_to(first.shape, wide) / max(1, len(vertices[0].slots))).to(first.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.rule, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        rule, (scale, noise, *tensors) = ctx.rule, ctx.saved_tensors
        count = len(rule.entries)
        parts = tuple(tensors[:count])
        gradients = rule.gradients(grads[0].detach(), scale, noise, parts, _vertices(rule, tensors))
        depends = [*parts, *([] if scale is None else [scale]), grads[0]]
        to_scale, *to_parts = once(depends, gradients)
        return None, to_scale, None, *to_parts, *[None] * (len(tensors) - count)


def _vertices(rule: Rule, tensors: Sequence[Tensor]) -> tuple[Vertices, ...]:
    assert rule.layout is not None
    return rule.layout.unpack(tensors[len(rule.entries) :])
