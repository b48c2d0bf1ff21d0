"""Scale nets for images and features: a strictly positive noise scale for each instance."""

import math

import torch
from torch import Tensor, nn

from directloss.nets.blocks import Images, check_size, conv, pool_relu, seeded
from directloss.nets.lenet import LeNet


def positive(x: Tensor) -> Tensor:
    """Softplus, kept above the smallest normal number, so that a scale never underflows to zero.

    Computed in float64 and rounded: in float32, vector and scalar instructions differ in the last bit, and a number's
    place in memory would decide which it meets.
    """
    scale: Tensor = nn.functional.softplus(x.double())
    return scale.clamp_min(torch.finfo(x.dtype).tiny).to(x.dtype)


class LeNetScale(nn.Sequential):
    """The paper's MNIST noise scale, strictly positive, by a ``LeNet``: (B, channels, size, size) -> (B,)."""

    def __init__(self, channels: int = 1, size: int = 28, *, generator: torch.Generator | None = None):
        with seeded(generator):
            super().__init__(LeNet(channels, size), nn.Linear(500, 1), _Positive())


class ConvScale(nn.Sequential):
    """The paper's CIFAR-10 noise scale, strictly positive: (B, channels, size, size) -> (B,)."""

    def __init__(self, channels: int = 3, size: int = 32, *, generator: torch.Generator | None = None):
        check_size(size, least=6)
        side = (size - 4) // 2
        with seeded(generator):
            super().__init__(
                Images(channels, size, size),
                *(conv(channels, 20, 5), *pool_relu()),
                *(nn.Flatten(), nn.Linear(20 * side**2, 1), _Positive()),
            )


class LinearScale(nn.Sequential):
    """A strictly positive noise scale of given features by one layer: (B, inputs) -> (B,)."""

    def __init__(self, inputs: int, *, generator: torch.Generator | None = None):
        with seeded(generator):
            super().__init__(nn.Linear(inputs, 1), _Positive())


class OneScale(nn.Module):
    """One strictly positive noise scale for all, learned as its logarithm: (B, ...) -> (B,), all alike.

    With several to start from, (R,), it is a stack of as many: (R, B, ...) -> (R, B).
    """

    start: Tensor  # its logarithm before training

    def __init__(self, start: float | Tensor = 1.0):
        super().__init__()
        self.log_sigma = nn.Parameter(torch.as_tensor(start, dtype=torch.get_default_dtype()).log())
        self.register_buffer("start", self.log_sigma.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.log_sigma.exp().unsqueeze(-1).expand(x.shape[: self.log_sigma.dim() + 1])

    @torch.no_grad()
    def anneal(self, done: float, factor: float) -> None:
        """Set it, after a share of training, on its geometric way from the start to ``factor`` times the start."""
        self.log_sigma.copy_(self.start + done * math.log(factor))


class _Positive(nn.Module):
    """(B, 1) -> (B,), above zero."""

    def forward(self, x: Tensor) -> Tensor:
        return positive(x.squeeze(-1))
