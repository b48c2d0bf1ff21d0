"""Which item gets which of n fixed values."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures.arrays import pieces
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask, check_mask_entries


class Ranking(Structure):
    """Which of n items gets which of n fixed values: y_i is the value of item i. ``*E`` is (n,).

    The largest score gets the largest value. With the discounts of DCG as values, y_i is the discount at the rank of
    item i, and DCG is linear: the cost is minus the gain.

    Args:
        values: (n,), or (B..., n) with values for each instance; any finite numbers, in any order, also equal ones.
        mask: (n,) or (B..., n), True where there is an item: lists of unequal length. Of m items the m largest values
            are given out; where there is no item, y is 0.

    Example:
        >>> import torch, directloss as dl
        >>> discounts = 1 / torch.log2(torch.arange(2.0, 5.0))
        >>> dl.Ranking(discounts).solve(torch.tensor([0.1, 0.9, 0.5]))
        tensor([0.5000, 1.0000, 0.6309])
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"values": 1, "mask": 1}
    proven = True

    def __init__(self, values: Tensor, mask: Tensor | None = None):
        if not isinstance(values, Tensor):
            raise TypeError(f"values is {type(values).__name__}, expected a torch.Tensor (torch.as_tensor makes one)")
        if values.is_complex() or values.dtype == torch.bool:
            raise TypeError(f"values are {values.dtype}, expected numbers")
        if values.dim() < 1:
            raise ValueError("values is one number, expected (n,), a value for each of n ranks")
        values = values.detach() if values.is_floating_point() else values.to(torch.get_default_dtype())
        # From the best rank to the worst: sorted once here, not at every call.
        self.values = values.sort(-1, descending=True).values
        if mask is not None:
            check_mask("mask", mask, 1, "there is an item")
        self.mask = mask
        self._validate_values()

    def _validate(self) -> None:
        wrong = ~torch.isfinite(self.values).all(-1)
        if wrong.any():
            raise ValueError(f"values of instance {tuple(wrong.nonzero()[0].tolist())} are not all finite")

    def _check_entries(self, entries: torch.Size) -> None:
        if entries != self.values.shape[-1:]:
            raise ValueError(
                f"scores have {entries[0]} items, but values are {self.values.shape[-1]}; give a value for each item "
                "(0 for ranks that do not count)"
            )
        check_mask_entries("mask", self.mask, entries)

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        n = scores.shape[-1]
        rows, values = (one.expand_as(scores).reshape(-1, n) for one in (scores, self.values.to(scores)))
        mask = None if self.mask is None else self.mask.to(scores.device).expand_as(scores).reshape(-1, n)
        y = torch.empty_like(rows)
        for piece in pieces(len(rows), n):
            own, to = rows[piece], values[piece]
            if mask is not None:
                ranks = torch.arange(n, device=scores.device)
                to = to.masked_fill(ranks >= mask[piece].sum(-1, keepdim=True), 0)
                own = own.masked_fill(~mask[piece], -torch.inf)
            # Stable, so that of tied items the first gets the larger value, whatever the batch.
            y[piece].scatter_(-1, own.sort(dim=-1, descending=True, stable=True).indices, to)
        return (Vertices(scores.shape[-1:], None, y.reshape(scores.shape)),)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        items, values = self._given(parts[0])
        every: list[list[float]] = [[]]
        for _ in values:
            every = [[*some, value] for some in every for value in _left(values, some)]
        y = parts[0].new_zeros(len(every), len(parts[0]))
        y[:, items] = torch.tensor(every, device="cpu").to(parts[0])
        return (Vertices(parts[0].shape, None, y),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        values = self._given(parts[0])[1]
        return math.factorial(len(values)) // math.prod(math.factorial(times) for times in Counter(values).values())

    def _given(self, scores: Tensor) -> tuple[Tensor, list[float]]:
        """The items of the only instance, and the values that they are given."""
        mask = torch.ones(scores.shape, dtype=torch.bool) if self.mask is None else self.mask.flatten()
        return mask.nonzero().squeeze(-1), self.values.flatten()[: int(mask.sum())].tolist()


def _left(values: list[float], used: list[float]) -> list[float]:
    """The distinct values that remain when some are used, in the order of ``values``."""
    remaining = Counter(values)
    remaining.subtract(used)
    return [value for value, times in remaining.items() if times > 0]
