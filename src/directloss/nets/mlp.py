"""A net for flat features."""

from collections.abc import Sequence
from itertools import chain, pairwise

import torch
from torch import nn

from directloss.nets.blocks import seeded


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
