"""k of n."""

import math
import operator
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from directloss.structures.base import Structure


class Subset(Structure):
    """Exactly k of n entries: top-k, the k nearest neighbours. ``*E`` is (n,)."""

    entry_dims = 1

    def __init__(self, k: int):
        try:
            k = operator.index(k)
        except TypeError:
            raise TypeError(f"k is {k!r}, expected an int") from None
        if k < 1:
            raise ValueError(f"k is {k}, expected at least 1")
        self.k = k

    def check_shape(self, entries: Sequence[int]) -> None:
        if entries[0] < self.k:
            raise ValueError(f"cannot take k = {self.k} of n = {entries[0]} entries; lower k or give more entries")

    def enumerate(self, entries: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        self.check_count(entries)
        chosen = torch.tensor(list(combinations(range(entries[0]), self.k)))
        return torch.zeros(len(chosen), entries[0], dtype=dtype).scatter_(1, chosen, 1)

    def count(self, entries: Sequence[int]) -> int:
        return math.comb(entries[0], self.k)

    def _ones(self, scores: Tensor) -> Tensor:
        return torch.topk(scores, self.k, dim=-1, sorted=False).indices.sort(-1).values

    def __repr__(self) -> str:
        return f"Subset(k={self.k})"
