"""Score nets and scale nets of the paper.

Of the sorting nets, ``stack`` trains many independent copies as one: parameters, inputs and outputs get leading axes of
that shape. The image nets take (B, channels, height, width) and work in ``channels_last`` layout inside, which is
faster. All parameters start as torch's own layers do, drawn from ``generator`` (None: torch's default one).
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Literal

import torch
from torch import Tensor, nn

Norm = Literal["batch", "group"]
_ONE_AT_A_TIME = threading.RLock()


class _Affine(nn.Module):
    """``nn.Linear`` with leading stack axes and its default initialisation, drawn from ``generator``."""

    def __init__(self, inputs: int, outputs: int, stack: Sequence[int], generator: torch.Generator | None):
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(*stack, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(*stack, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class SortingNet(nn.Module):
    """Scores of a matching of numbers to positions: (*stack, B, n) -> (*stack, B, n, n), each number on its own."""

    def __init__(self, n: int, hidden: int = 32, stack: Sequence[int] = (), generator: torch.Generator | None = None):
        super().__init__()
        self.embed = _Affine(1, hidden, stack, generator)
        self.score = _Affine(hidden, n, stack, generator)

    def forward(self, x: Tensor) -> Tensor:
        numbers = x.flatten(-2).unsqueeze(-1)
        # One input each: multiplying by broadcasting is far cheaper than a matrix product with an inner size of one.
        hidden = torch.relu(numbers * self.embed.weight + self.embed.bias)
        n = self.score.bias.shape[-1]
        # MKL's bits depend on how a small matrix is aligned, which in a stack is a copy's place: even out odd widths.
        padding = (0, -n % 4 if n % 2 else 0)
        weight, bias = (nn.functional.pad(part, padding) for part in (self.score.weight, self.score.bias))
        return (hidden @ weight + bias)[..., :n].reshape(*x.shape, n)


class SortingScale(nn.Module):
    """One strictly positive noise scale for each sequence: (*stack, B, n) -> (*stack, B)."""

    def __init__(self, n: int, stack: Sequence[int] = (), generator: torch.Generator | None = None):
        super().__init__()
        self.affine = _Affine(n, 1, stack, generator)

    def forward(self, x: Tensor) -> Tensor:
        # A sum, not a matrix product: its bits do not depend on how many copies are stacked.
        return positive((x * self.affine.weight.mT).sum(-1) + self.affine.bias.squeeze(-1))


def positive(x: Tensor) -> Tensor:
    """Softplus, kept above the smallest normal number, so that a scale never underflows to zero.

    Computed in float64 and rounded: in float32, vector and scalar instructions differ in the last bit, and a number's
    place in memory would decide which it meets.
    """
    scale: Tensor = nn.functional.softplus(x.double())
    return scale.clamp_min(torch.finfo(x.dtype).tiny).to(x.dtype)


class LeNet(nn.Sequential):
    """The paper's MNIST embedding: (B, channels, size, size) -> (B, outputs), none of them negative."""

    def __init__(
        self, channels: int = 1, size: int = 28, outputs: int = 500, *, generator: torch.Generator | None = None
    ):
        _check_size(size, least=16)
        side = ((size - 4) // 2 - 4) // 2
        with seeded(generator):
            super().__init__(
                _Images(channels, size, size),
                *(_conv(channels, 20, 5), *_pool_relu()),
                *(_conv(20, 50, 5), *_pool_relu()),
                *(nn.Flatten(), nn.Linear(50 * side**2, outputs), nn.ReLU(inplace=True)),
            )


class LeNetScale(nn.Sequential):
    """The paper's MNIST noise scale, strictly positive, by a ``LeNet``: (B, channels, size, size) -> (B,)."""

    def __init__(self, channels: int = 1, size: int = 28, *, generator: torch.Generator | None = None):
        with seeded(generator):
            super().__init__(LeNet(channels, size), nn.Linear(500, 1), _Positive())


class ConvScale(nn.Sequential):
    """The paper's CIFAR-10 noise scale, strictly positive: (B, channels, size, size) -> (B,)."""

    def __init__(self, channels: int = 3, size: int = 32, *, generator: torch.Generator | None = None):
        _check_size(size, least=6)
        side = (size - 4) // 2
        with seeded(generator):
            super().__init__(
                _Images(channels, size, size),
                *(_conv(channels, 20, 5), *_pool_relu()),
                *(nn.Flatten(), nn.Linear(20 * side**2, 1), _Positive()),
            )


class LinearScale(nn.Sequential):
    """A strictly positive noise scale of given features by one layer: (B, inputs) -> (B,)."""

    def __init__(self, inputs: int, *, generator: torch.Generator | None = None):
        with seeded(generator):
            super().__init__(nn.Linear(inputs, 1), _Positive())


class ResNet18(nn.Sequential):
    """The paper's Fashion-MNIST and CIFAR-10 embedding, a residual net for small images: -> (B, 512).

    Args:
        channels: of the images, which may have any height and width.
        outputs: a last linear layer to so many, or None for the embedding itself.
        norm: "batch", or "group" for no statistics over the batch: what one image gives does not depend on the others.
    """

    def __init__(
        self,
        channels: int = 3,
        outputs: int | None = None,
        norm: Norm = "batch",
        *,
        generator: torch.Generator | None = None,
    ):
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        with seeded(generator):
            super().__init__(
                _Images(channels, least=1),
                *(*_conv_norm(channels, 64, norm), nn.ReLU(inplace=True)),
                *(_BasicBlock(*pair, norm) for pair in pairwise(widths)),
                *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                *([] if outputs is None else [nn.Linear(512, outputs)]),
            )


class ResNet9(nn.Sequential):
    """A small residual net for a few cores: (B, channels, height, width), 8 x 8 or more, -> (B, 8 * width).

    ``norm`` is as for ``ResNet18``.
    """

    def __init__(
        self, channels: int = 3, width: int = 32, norm: Norm = "batch", *, generator: torch.Generator | None = None
    ):
        with seeded(generator):
            super().__init__(
                _Images(channels, least=8),
                *(*_conv_norm(channels, width, norm), nn.ReLU(inplace=True)),
                *(*_conv_norm(width, 2 * width, norm), *_pool_relu()),
                _Residual(2 * width, norm),
                *(*_conv_norm(2 * width, 4 * width, norm), *_pool_relu()),
                *(*_conv_norm(4 * width, 8 * width, norm), *_pool_relu()),
                _Residual(8 * width, norm),
                *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            )


class MLP(nn.Sequential):
    """For flat features: (..., inputs) -> (..., outputs), with a ReLU between any two layers."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (256,),
        outputs: int = 64,
        *,
        generator: torch.Generator | None = None,
    ):
        widths = (inputs, *hidden, outputs)
        with seeded(generator):
            layers = [*chain(*((nn.Linear(*pair), nn.ReLU(inplace=True)) for pair in pairwise(widths)))]
            super().__init__(*layers[:-1])


# By name: called with the images' channels and size, and the net's own options.
IMAGE_NETS: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "resnet9": lambda channels, size, **options: ResNet9(channels, **options),
    "resnet18": lambda channels, size, **options: ResNet18(channels, **options),
}


class _Images(nn.Module):
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


class _Positive(nn.Module):
    """(B, 1) -> (B,), above zero."""

    def forward(self, x: Tensor) -> Tensor:
        return positive(x.squeeze(-1))


class _BasicBlock(nn.Module):
    """``relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))``; where the width grows, the image is halved."""

    def __init__(self, inputs: int, outputs: int, norm: Norm):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.body = nn.Sequential(
            *(*_conv_norm(inputs, outputs, norm, stride=stride), nn.ReLU(inplace=True)),
            *_conv_norm(outputs, outputs, norm),
        )
        self.shortcut = nn.Sequential(
            *([] if inputs == outputs else _conv_norm(inputs, outputs, norm, kernel=1, stride=stride))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.body(x))


class _Residual(nn.Module):
    """``x + relu(norm(conv(relu(norm(conv(x))))))``."""

    def __init__(self, width: int, norm: Norm):
        super().__init__()
        self.body = nn.Sequential(
            *(*_conv_norm(width, width, norm), nn.ReLU(inplace=True)),
            *(*_conv_norm(width, width, norm), nn.ReLU(inplace=True)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.body(x))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias)
    # Not ``contiguous``, which leaves the strides of a single channel, and so the output's layout, as they are.
    conv.weight.data = conv.weight.data.to(memory_format=torch.channels_last)
    return conv


def _conv_norm(inputs: int, outputs: int, norm: Norm, kernel: int = 3, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    if norm not in ("batch", "group"):
        raise ValueError(f"norm is {norm!r}, expected 'batch' or 'group'")
    conv = _conv(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    # Groups of 16 channels or, where that does not divide, more: one channel of one pixel would always become 0.
    groups = math.gcd(outputs, max(1, outputs // 16))
    return conv, nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(groups, outputs)


def _pool_relu() -> tuple[nn.Module, nn.Module]:
    """In this order: the same values as the other way round, on a quarter of the entries."""
    return nn.MaxPool2d(2), nn.ReLU(inplace=True)


def _check_size(size: int, least: int) -> None:
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
