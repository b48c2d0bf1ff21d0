"""The paper's sorting nets. ``stack`` trains many independent copies as one."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from directloss.nets.scales import positive


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
