"""Blackbox differentiation (Pogancic et al. 2020): the direct loss whose cost is the gradient that arrives from above.

Forward, the layer is the maximiser ``y = argmax_y <theta, y>`` itself. Backward, with g the gradient to y, it looks one
step along the direction that lowers the loss, linearised at y:

    y_step = argmax_y <theta - step * g, y>
    to theta: (y - y_step) / step,

which is the direct loss at ``epsilon = -step``, one side. It is the gradient of a piecewise linear interpolation of the
loss, not of the loss, whose derivative is zero. (The paper minimises ``<w, y>``: its w is ``-theta``, its lambda the
step.)
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from directloss.layers.adaptive_step import AdaptiveStep, check_step
from directloss.layers.decision import Rule, decide
from directloss.losses.direct import Rule as DirectRule
from directloss.losses.solving import Tensors
from directloss.losses.task import stack
from directloss.parts import Scores, Vertices
from directloss.perturbation import perturbed
from directloss.structures.base import Structure
from directloss.transforms import inside_transform


def blackbox(scores: Scores, structure: Structure, *, step: float | AdaptiveStep = 1.0) -> Tensor:
    """The best structure, (B..., *E); its gradient takes one more solve. Takes every structure.

    Args:
        scores: (B..., *E), or a tuple of parts; each gets a gradient.
        structure: what is predicted.
        step: how far the second solve looks, times the gradient that arrives. Too small, and most instances get no
            gradient; too large, and the answer follows the gradient alone. An ``AdaptiveStep`` finds it.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.0, 2.0, 1.0]], requires_grad=True)
        >>> y = dl.blackbox(scores, dl.Choice(), step=2.0)
        >>> (y * torch.tensor([1.0, 1.0, 0.0])).sum().backward()
        >>> y.detach(), scores.grad
        (tensor([[0., 1., 0.]]), tensor([[ 0.0000,  0.5000, -0.5000]]))
    """
    check_step(step)
    return decide(partial(Blackbox, step=step), scores, structure)


@dataclass
class Blackbox(Rule):
    """The difference of two maximisers on the same noise, formed by the direct loss's own rule."""

    step: float | AdaptiveStep = 1.0
    both: bool = False  # the central difference

    def gradients(
        self, grad: Tensor, scale: Tensor | None, noise: Tensor | None, parts: Tensors, vertices: tuple[Vertices, ...]
    ) -> list[Tensor | None]:
        step = self.step.step(parts[0], grad) if isinstance(self.step, AdaptiveStep) else self.step
        theta, steps = perturbed(parts[0], scale, noise), (-step, step) if self.both else (-step,)
        solved = [self.solve((torch.add(theta, grad, alpha=one), *parts[1:])) for one in steps]
        every = tuple(stack(ends) for ends in zip(vertices, *solved, strict=True))
        learns_scale = scale is not None and (scale.requires_grad or inside_transform())
        rule = DirectRule(self.structure, (0.0, *steps), -step * len(steps), self.entries, learns_scale)
        if isinstance(self.step, AdaptiveStep):
            ahead, behind = (every[0].select(end).dense(torch.float32) for end in rule.ends)
            self.step.update((ahead != behind).sum().item() / max(1, theta.numel() // self.entries[0].numel()))
        drawn = [*rule.drawn(every, noise), None][0]
        shapes = [(part.shape, part.dtype) for part in parts]
        one = torch.ones((), dtype=grad.dtype, device=grad.device)
        return rule.gradients(one, every, drawn, None, shapes, torch.Size() if scale is None else scale.shape)
