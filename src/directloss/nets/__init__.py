"""Score nets and scale nets: the paper's, and smaller ones that a few cores can train.

Of the sorting nets, ``stack`` trains many independent copies as one: parameters, inputs and outputs get leading axes of
that shape. The image nets take (B, channels, height, width) and work in ``channels_last`` layout inside, which is
faster. All parameters start as torch's own layers do, unless the net says otherwise, drawn from ``generator`` (None:
torch's default one).
"""

from collections.abc import Callable

from torch import nn

from directloss.nets.blocks import seeded
from directloss.nets.lenet import LeNet
from directloss.nets.mlp import MLP
from directloss.nets.resnet import ResNet9, ResNet18
from directloss.nets.scales import ConvScale, LeNetScale, LinearScale, OneScale, positive
from directloss.nets.sorting import SortingNet, SortingScale
from directloss.nets.whitenet import WhiteNet

__all__ = [
    "IMAGE_NETS",
    "MLP",
    "ConvScale",
    "LeNet",
    "LeNetScale",
    "LinearScale",
    "OneScale",
    "ResNet9",
    "ResNet18",
    "SortingNet",
    "SortingScale",
    "WhiteNet",
    "positive",
    "seeded",
]

# By name: called with the images' channels and size, and the net's own options.
IMAGE_NETS: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "resnet9": lambda channels, size, **options: ResNet9(channels, **options),
    "resnet18": lambda channels, size, **options: ResNet18(channels, **options),
    "whitenet": lambda channels, size, **options: WhiteNet(channels, **options),
}
