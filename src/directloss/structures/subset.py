"""k of n."""

import math
import operator
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask, check_mask_entries
from directloss.structures.largest import largest_entries
from directloss.structures.partition import log_sum_of_subsets, only
from directloss.transforms import inside_transform


class Subset(Structure):
    """Exactly k of n entries: top-k, the k nearest neighbours. ``*E`` is (n,).

    Args:
        k: how many; a number, or whole numbers, one for each instance (B...).
        mask: boolean, True where an entry may be taken; broadcasts to the scores.

    Example:
        >>> import torch, directloss as dl
        >>> dl.Subset(torch.tensor([1, 2])).solve(torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))
        tensor([[0., 0., 1.],
                [0., 1., 1.]])
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"counts": 0, "mask": 1}
    proven = True
    summable = True

    def __init__(self, k: int | Tensor, mask: Tensor | None = None):
        if mask is not None:
            check_mask("mask", mask, 1, "an entry may be taken")
        self.mask = mask
        self.k, self.counts = k, None
        if isinstance(k, Tensor) and (k.dim() or inside_transform()):
            if k.is_floating_point() or k.dtype == torch.bool:
                raise TypeError(f"k is {k.dtype}, expected whole numbers")
            self.counts = k
        else:
            try:
                self.k = operator.index(k)
            except TypeError:
                raise TypeError(f"k is {k!r}, expected an int, or a tensor of whole numbers") from None
            if self.k < 1:
                raise ValueError(f"k is {self.k}, expected at least 1")
        self._validate_values()

    def _validate(self) -> None:
        if self.counts is not None and (self.counts < 0).any():
            raise ValueError(f"k has {int(self.counts.min())} among its numbers, expected at least 0")
        if self.mask is not None:
            allowed, wanted = torch.broadcast_tensors(self.mask.sum(-1), torch.as_tensor(self.wanted))
            if (allowed < wanted).any():
                where = tuple((allowed < wanted).nonzero()[0].tolist())
                raise ValueError(
                    f"the mask leaves instance {where} only {int(allowed[where])} entries for k = "
                    f"{int(wanted[where])}; allow more there, or lower k"
                )

    @property
    def wanted(self) -> int | Tensor:
        """k: one number, or one for each instance."""
        return self.counts if self.counts is not None else self.k

    @property
    def largest(self) -> int:
        """The largest k of the batch."""
        return int(self.counts.max()) if self.counts is not None else operator.index(self.k)

    def _check_entries(self, entries: torch.Size) -> None:
        check_mask_entries("mask", self.mask, entries)
        if self.counts is None:
            self.most_of(entries[0])

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        if self.counts is None:
            return (largest_entries(parts[0], cost, steps, operator.index(self.k), self.mask),)
        return super()._maximize_along(parts, cost, steps)

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        entries = scores.shape[-1:]
        most = self.most_of(entries[0])
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, -torch.inf)
        assert self.counts is not None
        best = torch.topk(scores, most).indices
        taken = torch.arange(most, device=scores.device) < self.counts.unsqueeze(-1)
        # Sorted by position, those that are not taken last, so that equal subsets have equal slots.
        where = torch.where(taken, best, entries[0]).sort(-1).values
        kept = where < entries[0]
        return (Vertices(entries, where * kept, kept.to(scores.dtype)),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        scores = only(parts[0], self.mask)
        if self.counts is None:
            return log_sum_of_subsets(scores, self.largest)[..., -1]
        most = scores.shape[-1] if inside_transform() else self.most_of(scores.shape[-1])
        counts = self.counts.to(scores.device).expand(scores.shape[:-1])
        return log_sum_of_subsets(scores, most).gather(-1, counts.long().unsqueeze(-1)).squeeze(-1)

    def most_of(self, n: int) -> int:
        """The largest k; raise ValueError if there are fewer entries."""
        if self.largest > n:
            raise ValueError(f"cannot take k = {self.largest} of n = {n} entries; lower k or give more entries")
        return self.largest

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        every = list(combinations(self._allowed(scores), self._one_k()))
        positions = torch.tensor(every, dtype=torch.int64, device=scores.device).reshape(len(every), self._one_k())
        return (Vertices(scores.shape, positions, None),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        return math.comb(len(self._allowed(parts[0])), self._one_k())

    def _allowed(self, scores: Tensor) -> list[int]:
        return list(range(len(scores))) if self.mask is None else self.mask.flatten().nonzero().flatten().tolist()

    def _one_k(self) -> int:
        return int(self.wanted)

    def __repr__(self) -> str:
        k = f"k={self.k}" if self.counts is None else "k=..."
        return f"Subset({k})" if self.mask is None else f"Subset({k}, mask=...)"
