"""The paper's net for MNIST."""

import torch
from torch import nn

from directloss.nets.blocks import Images, check_size, conv, pool_relu, seeded


class LeNet(nn.Sequential):
    """The paper's MNIST embedding: (B, channels, size, size) -> (B, outputs), none of them negative."""

    def __init__(
        self, channels: int = 1, size: int = 28, outputs: int = 500, *, generator: torch.Generator | None = None
    ):
        check_size(size, least=16)
        side = ((size - 4) // 2 - 4) // 2
        with seeded(generator):
            super().__init__(
                Images(channels, size, size),
                *(conv(channels, 20, 5), *pool_relu()),
                *(conv(20, 50, 5), *pool_relu()),
                *(nn.Flatten(), nn.Linear(50 * side**2, outputs), nn.ReLU(inplace=True)),
            )
