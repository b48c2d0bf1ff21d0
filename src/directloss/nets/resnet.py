"""Residual nets for small images."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from directloss.nets.blocks import Images, Norm, conv_norm, pool_relu, seeded


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
                Images(channels, least=1),
                *(*conv_norm(channels, 64, norm), nn.ReLU(inplace=True)),
                *(BasicBlock(*pair, norm) for pair in pairwise(widths)),
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
                Images(channels, least=8),
                *(*conv_norm(channels, width, norm), nn.ReLU(inplace=True)),
                *(*conv_norm(width, 2 * width, norm), *pool_relu()),
                Residual(2 * width, norm),
                *(*conv_norm(2 * width, 4 * width, norm), *pool_relu()),
                *(*conv_norm(4 * width, 8 * width, norm), *pool_relu()),
                Residual(8 * width, norm),
                *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            )


class BasicBlock(nn.Module):
    """``relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))``; where the width grows, the image is halved."""

    def __init__(self, inputs: int, outputs: int, norm: Norm):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.body = nn.Sequential(
            *(*conv_norm(inputs, outputs, norm, stride=stride), nn.ReLU(inplace=True)),
            *conv_norm(outputs, outputs, norm),
        )
        self.shortcut = nn.Sequential(
            *([] if inputs == outputs else conv_norm(inputs, outputs, norm, kernel=1, stride=stride))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.body(x))


class Residual(nn.Module):
    """``x + relu(norm(conv(relu(norm(conv(x))))))``."""

    def __init__(self, width: int, norm: Norm):
        super().__init__()
        self.body = nn.Sequential(
            *(*conv_norm(width, width, norm), nn.ReLU(inplace=True)),
            *(*conv_norm(width, width, norm), nn.ReLU(inplace=True)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.body(x))
