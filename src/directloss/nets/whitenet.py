"""A net for a few cores: fixed filters that whiten, then six convolutions that begin as the identity."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from directloss.nets.blocks import Images, Norm, conv_norm, seeded

_SIDE = 2  # of the patches that are whitened
_LEAST = 5e-4  # variance that a direction of a patch is taken to have at least, in images of unit variance


class WhiteNet(nn.Sequential):
    """A small net for small images after the facts of cifar10-airbench (Jordan 2024): -> (B, 4 * width).

    The first filters are fixed: ``whiten`` sets them to the principal directions of the 2 x 2 patches of your images,
    each divided by its deviation, and to their negatives. What follows gets the same input over all of training, and
    nothing has to go back through the largest images. Three groups of ``width``, 4 and 4 times ``width`` channels
    halve the image; a maximum over what is left of it is the embedding. A convolution begins as the identity on as
    many channels as it gets.

    Args:
        channels: of the images, which may have any height and width from 2 pixels on.
        width: channels of the first group. At 64 an image of 32 x 32 takes .24 GFLOP forward, at 32 .07.
        norm: as for ``ResNet18``.

    Example:
        >>> import torch, directloss as dl
        >>> images = torch.rand(100, 3, 32, 32)
        >>> net = dl.nets.WhiteNet(width=16).whiten(images)
        >>> net(images[:2]).shape
        torch.Size([2, 64])
    """

    def __init__(
        self, channels: int = 3, width: int = 64, norm: Norm = "batch", *, generator: torch.Generator | None = None
    ):
        with seeded(generator):
            whitening = _Whitening(channels)
            widths = (len(whitening.filters), width, 4 * width, 4 * width)
            super().__init__(
                *(Images(channels, least=_SIDE), whitening, nn.GELU()),
                *(_Group(*pair, norm) for pair in pairwise(widths)),
                *(nn.AdaptiveMaxPool2d(1), nn.Flatten()),
            )

    def whiten(self, images: Tensor) -> "WhiteNet":
        """Set the first filters by these images, scaled as those that the net will get."""
        whitening = self[1]
        assert isinstance(whitening, _Whitening)
        whitening.fit(self[0](images))
        return self


class _Whitening(nn.Module):
    """Convolution with fixed filters, without a border; random directions until they are fitted."""

    filters: Tensor

    def __init__(self, channels: int):
        super().__init__()
        size = channels * _SIDE**2
        self.register_buffer("filters", _both_signs(nn.init.orthogonal_(torch.empty(size, size)), channels))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.filters)

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        patches = nn.functional.unfold(images.contiguous(), _SIDE).movedim(1, -1).flatten(0, 1).double()
        variances, directions = torch.linalg.eigh(torch.cov(patches.mT))
        self.filters.copy_(_both_signs((directions / (variances + _LEAST).sqrt()).mT.flip(0), images.shape[1]))


def _both_signs(directions: Tensor, channels: int) -> Tensor:
    """Filters (2 n, channels, side, side) from n directions, which are also the other way round."""
    filters = torch.cat([directions, -directions]).reshape(-1, channels, _SIDE, _SIDE)
    return filters.to(memory_format=torch.channels_last)


class _Group(nn.Module):
    """``act(norm(conv(act(norm(pool(conv(x)))))))``. Pooling comes first: the rest has a quarter of the entries."""

    def __init__(self, inputs: int, outputs: int, norm: Norm):
        super().__init__()
        self.conv1, self.norm1 = conv_norm(inputs, outputs, norm)
        self.conv2, self.norm2 = conv_norm(outputs, outputs, norm)
        for filters in (self.conv1.weight, self.conv2.weight):
            nn.init.dirac_(filters.data[: filters.shape[1]])

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if min(x.shape[2:]) > 1:
            x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.gelu(self.norm1(x))
        return nn.functional.gelu(self.norm2(self.conv2(x)))
