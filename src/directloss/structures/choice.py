"""One of n."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask, check_mask_entries
from directloss.structures.largest import largest_entries
from directloss.structures.partition import only


class Choice(Structure):
    """One of n entries: a classifier's decision. ``*E`` is (n,).

    Args:
        mask: boolean, True where an entry may be chosen; broadcasts to the scores.

    Example:
        >>> import torch, directloss as dl
        >>> dl.Choice(mask=torch.tensor([True, True, False])).solve(torch.tensor([1.0, 2.0, 3.0]))
        tensor([0., 1., 0.])
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"mask": 1}
    proven = True
    summable = True

    def __init__(self, mask: Tensor | None = None):
        if mask is not None:
            check_mask("mask", mask, 1, "an entry may be chosen")
        self.mask = mask
        self._validate_values()

    def _validate(self) -> None:
        if self.mask is not None and not self.mask.any(-1).all():
            where = (~self.mask.any(-1)).nonzero()[0].tolist()
            raise ValueError(f"the mask leaves instance {tuple(where)} without an entry to choose; allow one at least")

    def _check_entries(self, entries: torch.Size) -> None:
        if entries[0] < 1:
            raise ValueError("scores have no entries to choose from; expected n >= 1 on the last axis")
        check_mask_entries("mask", self.mask, entries)

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        return (largest_entries(parts[0], cost, steps, 1, self.mask),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        return only(parts[0], self.mask).logsumexp(-1)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        every = torch.arange(len(scores), device=scores.device)
        if self.mask is not None:
            every = every[self.mask.expand_as(scores)]
        return (Vertices(scores.shape, every.unsqueeze(-1), None),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        return len(parts[0]) if self.mask is None else int(self.mask.expand_as(parts[0]).sum())
