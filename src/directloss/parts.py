"""Scores in parts, and the vertices that maximise them. All index arithmetic of the library is in this file.

Axes: S samples, B batch (any number of axes), ``*E`` the entries of one part of a structure. Scores are one tensor
(B..., *E), or a tuple of parts: the first is perturbed and carries the cost, and the others are factors over larger
subsets of the decision, which broadcast over the batch and over positions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from directloss.later import later
from directloss.transforms import inside_transform

_kernels = later("directloss.parts_kernel")
Scores = Tensor | tuple[Tensor, ...]


def as_parts(scores: Scores | Sequence[Tensor], name: str = "scores") -> tuple[Tensor, ...]:
    """The parts of scores. Raise TypeError unless each is a floating-point tensor."""
    parts = (scores,) if isinstance(scores, Tensor) else scores
    if not isinstance(parts, (tuple, list)) or not parts:
        got = type(scores).__name__
        raise TypeError(f"{name}: got {got}, expected a torch.Tensor (torch.as_tensor makes one), or a tuple of them")
    for part in parts:
        if not isinstance(part, Tensor):
            raise TypeError(f"{name}: got {type(part).__name__}, expected a torch.Tensor (torch.as_tensor makes one)")
        if not part.is_floating_point():
            raise TypeError(f"{name} are {part.dtype}, expected a floating-point dtype: call .float() on them")
    return tuple(parts)


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape broadcasts to exactly the other."""
    if shape == to:
        return True
    aligned = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in aligned)


def check_cost(cost: Tensor, scores: Tensor) -> None:
    """Raise ValueError unless the cost broadcasts to the scores."""
    if not broadcasts(cost.shape, scores.shape):
        raise ValueError(
            f"cost has shape {tuple(cost.shape)}, which does not broadcast to the scores' {tuple(scores.shape)}; "
            "give the cost the shape of the scores, or fewer leading axes"
        )


def fit_cost(cost: Tensor, scores: Tensor) -> Tensor:
    """The cost with the scores' dtype and device, not expanded."""
    if not isinstance(cost, Tensor):
        raise TypeError(f"cost is {type(cost).__name__}, expected a tensor, or a function of the structure")
    check_cost(cost, scores)
    cost = cost.detach() if cost.requires_grad else cost
    return cost if cost.dtype == scores.dtype and cost.device == scores.device else cost.to(scores)


class Vertices(NamedTuple):
    """One part of the structures that a maximiser returns: where they are not zero, and what they are there.

    ``positions`` (..., K) count along the flattened entries, in an order that depends on the structure alone; None
    stands for every entry in order. ``values`` (..., K) are what stands there; None stands for ones. An instance with
    fewer than K entries fills up with values of zero.
    """

    entries: torch.Size
    positions: Tensor | None
    values: Tensor | None

    @classmethod
    def of_dense(cls, y: Tensor, entry_dims: int) -> "Vertices":
        """The structures y (..., *E), every entry kept."""
        leading = y.dim() - entry_dims
        return cls(y.shape[leading:], None, y.flatten(leading) if entry_dims != 1 else y)

    @classmethod
    def of_coordinates(cls, entries: Sequence[int], *coordinates: Tensor) -> "Vertices":
        """Ones at the given coordinates, a tensor (..., K) for each axis of the entries."""
        positions = coordinates[0]
        for size, coordinate in zip(entries[1:], coordinates[1:], strict=True):
            positions = positions * size + coordinate
        return cls(torch.Size(entries), positions, None)

    @classmethod
    def empty(cls, leading: Sequence[int], entries: torch.Size, device: torch.device) -> "Vertices":
        """No entries, for a batch without instances or entries."""
        return cls(entries, torch.empty((*leading, 0), dtype=torch.int64, device=device), None)

    @property
    def slots(self) -> Tensor:
        """A tensor shaped (..., K)."""
        found = self.positions if self.positions is not None else self.values
        assert found is not None
        return found

    def select(self, index: int) -> "Vertices":
        """Those at ``index`` of the leading axis."""
        return Vertices(
            self.entries,
            None if self.positions is None else self.positions[index],
            None if self.values is None else self.values[index],
        )

    def repeated(self, count: int) -> "Vertices":
        """The same structures ``count`` times, along a new leading axis."""
        positions, values = (
            None if tensor is None else tensor.expand(count, *tensor.shape) for tensor in (self.positions, self.values)
        )
        return Vertices(self.entries, positions, values)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """The structures themselves, (..., *E)."""
        leading = self.slots.shape[:-1]
        if self.positions is None:
            assert self.values is not None
            return self.values.to(dtype).reshape(*leading, *self.entries)
        if self.values is None and on_cpu(self.positions):
            kernels = _kernels()
            if dtype in kernels.DTYPES:
                return kernels.dense(self.positions, self.entries, dtype)  # type: ignore[no-any-return]
        y = torch.zeros((*leading, math.prod(self.entries)), dtype=dtype, device=self.positions.device)
        if self.values is None:
            y.scatter_(-1, self.positions, 1.0)
        else:  # where zeros fill up, they add nothing to an entry that may stand for itself
            y.scatter_add_(-1, self.positions, self.values.to(dtype))
        return y.reshape(*leading, *self.entries)

    def at(self, weights: Tensor) -> Tensor:
        """The weights, which broadcast to (..., *E), at the positions: (..., K)."""
        dims = len(self.entries)
        own = _own_entries(weights.shape, self.entries)
        if dims > 1 or weights.dim() < dims:
            weights = weights.reshape(*weights.shape[: max(0, weights.dim() - dims)], math.prod(own))
        weights = weights.expand(*self.slots.shape[:-1], weights.shape[-1])
        if self.positions is None and own == self.entries:
            return weights
        return weights.gather(-1, self._positions_in(own))

    def inner(self, weights: Tensor) -> Tensor:
        """``<weights, y>``, (...)."""
        if (weighed := self._weighed_on_cpu(weights)) is not None:
            return torch.from_numpy(weighed[0][0, ...])
        picked = self.at(weights)
        return (picked if self.values is None else picked * self.values).sum(-1)

    def weigh(self, weights: Tensor) -> np.ndarray:
        """``<weights, y>`` and ``<|weights|, |y|>`` as an array (2, ...)."""
        if (weighed := self._weighed_on_cpu(weights)) is not None:
            return weighed[0]
        terms = self.at(weights)
        if self.values is not None:
            terms = terms * self.values
        return torch.stack((terms, terms.abs())).sum(-1).cpu().numpy()

    def average(self, weights: Tensor, count: int | None = None) -> Tensor:
        """``<weights, y>`` of the first on the leading axis, averaged over the next one, the samples: (B...).

        With ``count`` the sum over the batch divided by it, ().
        """
        if (weighed := self._weighed_on_cpu(weights, only_first=True)) is not None:
            each, total = weighed
            samples = each.shape[1]
            if count:
                return torch.from_numpy(np.array(total / (samples * count), each.dtype))
            return torch.from_numpy(each[0, 0, ...] if samples == 1 else np.asarray(each[0].mean(0)))
        losses = self.select(0).inner(weights).mean(0)
        return losses if count is None else losses.sum() / count

    def _weighed_on_cpu(self, weights: Tensor, only_first: bool = False) -> tuple[np.ndarray, float] | None:
        if not on_cpu(weights):
            return None
        weighed: tuple[np.ndarray, float] | None
        weighed = _kernels().weigh(self.positions, self.values, self.entries, weights, only_first)
        return weighed

    def differs(self, other: "Vertices") -> Tensor:
        """Whether two structures of one set differ, (...)."""
        return self.unequal(other).any(-1)

    def unequal(self, other: "Vertices") -> Tensor:
        """Where the slots of two structures of one set differ, (..., K)."""
        if self.positions is None or other.positions is None or self.values is None or other.values is None:
            return self.slots != other.slots
        return (self.positions != other.positions) | (self.values != other.values)

    def difference(
        self,
        ends: tuple[int, int],
        shape: Sequence[int],
        dtype: torch.dtype,
        weights: tuple[Tensor, Tensor] | None = None,
        factor: float = 1.0,
    ) -> Tensor:
        """The structures at the first of two indices of the leading axis less those at the second, summed to ``shape``.

        ``shape`` broadcasts to (..., *E). The weights, one for each end, broadcast to (..., K) and multiply what stands
        in each slot. Both ends add up in the same order, so that where they agree exactly nothing is left, not a
        rounding error. The factor multiplies every difference, and leaves nothing of nothing even if it is infinite.
        """
        leading = self.slots.shape[1:-1]
        plain = weights is None and shape == (*leading[1:], *self.entries)  # for every entry, summed over the samples
        if plain and on_cpu(self.slots) and (self.values is None or self.values.dtype == dtype):
            total: Tensor = _kernels().difference(self.positions, self.values, ends, self.entries, dtype, factor)
            return total
        if factor != 1:
            total = self.difference(ends, shape, dtype, weights)
            return torch.where(total == 0, 0.0, total * factor)
        ahead, behind = (
            self.select(end).sum_to(shape, dtype, None if weights is None else weights[side])
            for side, end in enumerate(ends)
        )
        return ahead - behind

    def gap(
        self, other: "Vertices", weights: Tensor, factor: float = 1.0, add_up: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The structures less others, (..., *E), for weights of that shape, and ``factor * <weights, difference>``.

        The latter for each instance, (...), or their sum, ().
        """
        if on_cpu(weights):
            kernels = _kernels()
            dtypes = {weights.dtype, *(v.values.dtype for v in (self, other) if v.values is not None)}
            if dtypes <= kernels.DTYPES.keys():
                return kernels.gap(self, other, weights, factor, add_up)  # type: ignore[no-any-return]
        difference = self.dense(weights.dtype) - other.dense(weights.dtype)
        weighed = (difference * weights).sum(tuple(range(-len(self.entries), 0))) * factor
        return difference, weighed.sum() if add_up else weighed

    def sum_to(self, shape: Sequence[int], dtype: torch.dtype, weights: Tensor | None = None) -> Tensor:
        """The structures (..., *E), times weights that broadcast to (..., K), summed to a shape that broadcasts to it.

        A mean over samples is ``sum_to`` the shape without their axis, over their number: nothing dense is made for
        each sample.
        """
        leading = self.slots.shape[:-1]
        padded = (*[1] * (len(leading) + len(self.entries) - len(shape)), *shape)
        values = self._weighted(weights, dtype)
        if self.positions is None:
            dense = values.expand(self.slots.shape).reshape(*leading, *self.entries)
            return dense.sum_to_size(padded).reshape(shape)
        summed, own = padded[: len(leading)], torch.Size(padded[len(leading) :])
        where = self.positions if own == self.entries else self._within(self.positions, own)
        axes = [axis for axis, size in enumerate(summed) if size == 1]
        kept = [size for axis, size in enumerate(summed) if axis not in axes]
        last = tuple(range(len(kept), len(leading)))
        where, values = (
            tensor.movedim(axes, last).flatten(len(kept)) for tensor in (where, values.expand(where.shape))
        )
        total = torch.zeros((*kept, math.prod(own)), dtype=dtype, device=where.device)
        return total.scatter_add(-1, where, values).reshape(shape)

    def _weighted(self, weights: Tensor | None, dtype: torch.dtype) -> Tensor:
        """What stands in the slots, times the weights; broadcasts to (..., K)."""
        if self.values is None and weights is None:
            return torch.ones((), dtype=dtype, device=self.slots.device)
        if self.values is None or weights is None:
            found = weights if self.values is None else self.values
            assert found is not None
            return found.to(dtype)
        return self.values.to(dtype) * weights.to(dtype)

    def _positions_in(self, own: torch.Size) -> Tensor:
        """The positions, (..., K), in a tensor whose entries are ``own``, with axes of 1 along which it broadcasts."""
        positions = self.positions
        if positions is None:
            positions = torch.arange(math.prod(self.entries), device=self.slots.device).expand(self.slots.shape)
        return positions if own == self.entries else self._within(positions, own)

    def _within(self, positions: Tensor, own: torch.Size) -> Tensor:
        where = torch.zeros_like(positions)
        stride = step = 1
        for size, kept in zip(reversed(self.entries), reversed(own), strict=True):
            if kept != 1:
                where = where + positions.div(stride, rounding_mode="floor") % size * step
            stride, step = stride * size, step * kept
        return where


def on_cpu(tensor: Tensor) -> bool:
    """Whether kernels can read a tensor: in main memory, and its numbers are not those of a transform."""
    return tensor.is_cpu and not inside_transform()


def _own_entries(shape: Sequence[int], entries: torch.Size) -> torch.Size:
    """The sizes of the last axes of a tensor that broadcasts to (..., *entries), with ones where it has none."""
    return torch.Size([1] * (len(entries) - len(shape)) + list(shape[max(0, len(shape) - len(entries)) :]))
