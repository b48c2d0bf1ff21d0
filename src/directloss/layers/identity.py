"""Identity with projection (Sahoo et al. 2023), the straight-through rule for structures.

Forward, the layer is the maximiser ``y = argmax_y <theta, y>``. Backward it acts as if y were the scores, projected to
where they mean something: with g the gradient to y,

    none:  to theta: g
    mean:  to theta: g - mean(g)                              P(theta) = theta - mean(theta)
    norm:  to theta: (g - t <t, g>) / |theta|,  t = theta / |theta|      P(theta) = t
    both:  the mean, then the norm.

No maximiser changes with the length of the scores; one whose structures all have the same number of ones does not
change with their mean either, and a gradient along what changes nothing would only let the scores drift. Nothing is
solved backward. (The paper minimises ``<w, y>`` with ``w = -theta``: hence its negative identity.)
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from directloss.layers.decision import Rule, decide
from directloss.losses.solving import Tensors
from directloss.parts import Scores, Vertices
from directloss.structures.base import Structure

Projection = Literal["none", "mean", "norm", "both"]


def identity(scores: Scores, structure: Structure, *, projection: Projection = "norm") -> Tensor:
    """The best structure, (B..., *E), whose gradient goes to the scores as it is, or projected. Takes every structure.

    Args:
        scores: (B..., *E), or a tuple of parts. An entry's gradient goes to the score of that entry: further parts,
            which have no entry of their own in y, get zero.
        structure: what is predicted.
        projection: "norm" fits every structure; "both" and "mean" those with equally many ones in all (choices,
            subsets, matchings, trees); "none" is plain straight-through.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.0, 2.0, 1.0]], requires_grad=True)
        >>> y = dl.identity(scores, dl.Choice(), projection="mean")
        >>> (y * torch.tensor([3.0, 0.0, 0.0])).sum().backward()
        >>> y.detach(), scores.grad
        (tensor([[0., 1., 0.]]), tensor([[ 2., -1., -1.]]))
    """
    if projection not in get_args(Projection):
        raise ValueError(f"projection is {projection!r}, expected one of {', '.join(get_args(Projection))}")
    return decide(partial(_Identity, projection=projection), scores, structure)


@dataclass
class _Identity(Rule):
    projection: Projection = "norm"

    def gradients(
        self, grad: Tensor, scale: Tensor | None, noise: Tensor | None, parts: Tensors, vertices: tuple[Vertices, ...]
    ) -> list[Tensor | None]:
        first, axes = parts[0].detach(), tuple(range(-self.structure.entry_dims, 0))
        wide = torch.promote_types(first.dtype, torch.float32)
        theta, to_first = first.to(wide), grad.to(wide)
        if self.projection in ("mean", "both"):
            theta = theta - theta.mean(axes, keepdim=True)
        if self.projection in ("norm", "both"):
            length = theta.square().sum(axes, keepdim=True).sqrt()
            length = torch.where(length == 0, 1.0, length)  # scores that are all zero have no direction to keep
            along = theta / length
            to_first = (to_first - along * (along * to_first).sum(axes, keepdim=True)) / length
        if self.projection in ("mean", "both"):
            to_first = to_first - to_first.mean(axes, keepdim=True)
        return [None, to_first.to(first.dtype), *(torch.zeros_like(factor) for factor in parts[1:])]
