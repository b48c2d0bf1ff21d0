"""What image nets are built of: layout, convolutions, norms, and parameters drawn from a generator."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Norm = Literal["batch", "group"]
_ONE_AT_A_TIME = threading.RLock()


class Images(nn.Module):
    """Check images (B, channels, height, width) and lay them out as ``channels_last``."""

    def __init__(self, channels: int, least: int, most: float = math.inf):
        super().__init__()
        self.channels, self.least, self.most = channels, least, most

    def forward(self, x: Tensor) -> Tensor:
        sides = x.shape[2:]
        if x.dim() != 4 or x.shape[1] != self.channels or not self.least <= min(sides) <= max(sides) <= self.most:
            wanted = self.least if self.least == self.most else f"at least {self.least}"
            raise ValueError(
                f"images have shape {tuple(x.shape)}, expected (B, {self.channels}, height, width) with both sides "
                f"{wanted}; make the net for these images, or resize them"
            )
        if not x.is_floating_point():
            raise TypeError(f"images are {x.dtype}, expected a floating-point dtype: call .float() on them")
        return x.to(memory_format=torch.channels_last)


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True) -> nn.Conv2d:
    """A convolution whose filters are laid out as ``channels_last``."""
    made = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias)
    # Not ``contiguous``, which leaves the strides of a single channel, and so the output's layout, as they are.
    made.weight.data = made.weight.data.to(memory_format=torch.channels_last)
    return made


def conv_norm(inputs: int, outputs: int, norm: Norm, kernel: int = 3, stride: int = 1) -> tuple[nn.Conv2d, nn.Module]:
    """A convolution that keeps the image's size, but for its stride, and the norm behind it."""
    if norm not in ("batch", "group"):
        raise ValueError(f"norm is {norm!r}, expected 'batch' or 'group'")
    filters = conv(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    # Groups of 16 channels or, where that does not divide, more: one channel of one pixel would always become 0.
    groups = math.gcd(outputs, max(1, outputs // 16))
    return filters, nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(groups, outputs)


def pool_relu() -> tuple[nn.Module, nn.Module]:
    """In this order: the same values as the other way round, on a quarter of the entries."""
    return nn.MaxPool2d(2), nn.ReLU(inplace=True)


def check_size(size: int, least: int) -> None:
    """Raise ValueError if images are too small for a net."""
    if size < least:
        raise ValueError(f"size is {size}, expected at least {least}: pad or enlarge the images")


@contextmanager
def seeded(generator: torch.Generator | None) -> Iterator[None]:
    """Let torch's layers, which take no generator, draw their parameters from this one.

    They draw from the generator of the process, so threads that make nets at once take turns.
    """
    if generator is None:
        yield
        return
    seed = torch.randint(1 << 62, (), generator=generator, device=generator.device).item()
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(seed))
        yield
