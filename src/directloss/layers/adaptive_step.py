"""How far a layer's second solve looks: a number, or Minervini's adaptive step (2023).

It measures the step against scores and gradient, and moves it until a gradient has as many entries other than zero as
wanted:

    step = alpha |mu| / |g|,     alpha <- alpha +- change,    up where there are fewer.
"""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from directloss.transforms import inside_transform


def check_step(step: Any) -> None:
    """Raise ValueError unless it is a finite number above 0, or an AdaptiveStep where that can learn."""
    if isinstance(step, AdaptiveStep):
        if inside_transform():
            raise ValueError("an AdaptiveStep cannot learn inside torch.func; give step a number there")
    elif not isinstance(step, Real) or not 0 < float(step) < math.inf:
        raise ValueError(f"step is {step!r}, expected a finite number above 0, or dl.AdaptiveStep()")


class AdaptiveStep(nn.Module):
    """A step for ``imle`` and ``blackbox`` that follows scores and gradients.

    What it learns, once in each backward pass, is a buffer: saved and restored with the state_dict of the module that
    holds it. ``eval()`` freezes it.

    Args:
        start: the first alpha.
        change: how far alpha moves each time.
        target: how many entries of a sample's gradient should not be zero.
        decay: of the running mean of their number.

    Example:
        >>> import torch, directloss as dl
        >>> step, scores = dl.AdaptiveStep(1.5, change=0.5), torch.tensor([3.0, 0.0], requires_grad=True)
        >>> (dl.blackbox(scores, dl.Choice(), step=step) * torch.tensor([1e-3, 0.0])).sum().backward()
        >>> step  # two entries changed, one is wanted: shorter
        AdaptiveStep(1, change=0.5, target=1, decay=0.9)
    """

    state: Tensor  # alpha, and the running mean

    def __init__(self, start: float = 1.0, change: float = 1e-3, target: float = 1.0, decay: float = 0.9):
        super().__init__()
        for name, value in (("start", start), ("change", change), ("target", target)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, expected a finite number above 0")
        if not 0 <= decay < 1:
            raise ValueError(f"decay is {decay}, expected a number from 0 and below 1")
        self.change, self.target, self.decay = change, target, decay
        self.register_buffer("state", torch.tensor([start, target], dtype=torch.float64, device="cpu"))

    def step(self, theta: Tensor, grad: Tensor) -> float:
        """alpha times the length of the scores over that of the gradient."""
        length = grad.double().norm().item()
        step = float(self.state[0]) * theta.double().norm().item() / length if length else 1.0
        return step if 0 < step < torch.finfo(torch.float32).max else 1.0

    @torch.no_grad()
    def update(self, nonzero: float) -> None:
        """Tell how many entries of a sample's gradient were not zero, on average."""
        if self.training:
            alpha, mean = self.state.tolist()
            mean = self.decay * mean + (1 - self.decay) * nonzero
            alpha = max(alpha + (self.change if mean < self.target else -self.change), self.change)
            self.state.copy_(torch.tensor([alpha, mean]))

    def _apply(self, fn: Any, recurse: bool = True) -> "AdaptiveStep":
        return self  # two numbers in float64 that Python reads: neither another dtype nor a device would help

    def extra_repr(self) -> str:
        return f"{self.state[0]:g}, change={self.change:g}, target={self.target:g}, decay={self.decay:g}"
