"""One of n."""

from collections.abc import Sequence

import torch
from torch import Tensor

from directloss.structures.base import Structure


class Choice(Structure):
    """One of n entries: a classifier's decision. ``*E`` is (n,)."""

    entry_dims = 1

    def check_shape(self, entries: Sequence[int]) -> None:
        if entries[0] < 1:
            raise ValueError("scores have no entries to choose from; expected n >= 1 on the last axis")

    def enumerate(self, entries: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        self.check_count(entries)
        return torch.eye(entries[0], dtype=dtype)

    def count(self, entries: Sequence[int]) -> int:
        return entries[0]

    def _ones(self, scores: Tensor) -> Tensor:
        return scores.argmax(-1, keepdim=True)
