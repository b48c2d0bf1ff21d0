"""Each of n in or out."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask, check_mask_entries
from directloss.structures.partition import only


class Bits(Structure):
    """Each of n entries in or out, as its own score says: a multi-label decision. ``*E`` is (n,).

    Args:
        mask: boolean, True where an entry may be in; broadcasts to the scores.

    Example:
        >>> import torch, directloss as dl
        >>> dl.Bits().solve(torch.tensor([1.0, -2.0, 3.0]))
        tensor([1., 0., 1.])
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"mask": 1}
    proven = True
    summable = True

    def __init__(self, mask: Tensor | None = None):
        if mask is not None:
            check_mask("mask", mask, 1, "an entry may be in")
        self.mask = mask

    def _check_entries(self, entries: torch.Size) -> None:
        check_mask_entries("mask", self.mask, entries)

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        chosen = scores > 0
        if self.mask is not None:
            chosen = chosen & self.mask
        return (Vertices(scores.shape[-1:], None, chosen.to(scores.dtype)),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        return torch.nn.functional.softplus(only(parts[0], self.mask)).sum(-1)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        free = torch.arange(len(scores), device=scores.device)
        if self.mask is not None:
            free = free[self.mask.expand_as(scores)]
        numbers = torch.arange(2 ** len(free), device=scores.device).unsqueeze(-1)
        bits = numbers >> torch.arange(len(free), device=scores.device) & 1
        every = scores.new_zeros(len(numbers), len(scores)).index_copy_(1, free, bits.to(scores.dtype))
        return (Vertices(scores.shape, None, every),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        free = len(parts[0]) if self.mask is None else int(self.mask.expand_as(parts[0]).sum())
        return int(2**free)
