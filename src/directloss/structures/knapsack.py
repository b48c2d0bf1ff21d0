"""Items of whole weight within one capacity."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices
from directloss.structures.arrays import place, repeating, scores_and_cost
from directloss.structures.base import Structure

# Up to here whole numbers are exact in floating point too.
_LARGEST = 2**53
# Below this many sums, handing a part to another thread costs more than it gains.
_LEAST_WORK = 200_000


class Knapsack(Structure):
    """Any items whose weights stay within a capacity: what to pack, to fund, to show. ``*E`` is (n,).

    An item whose score is not positive is never taken. Of tied sets the one without the last item on which they differ
    is taken. Time grows with items times capacity.

    Args:
        weights: (n,) or (B..., n), whole numbers >= 0.
        capacity: a whole number >= 0, or one for each instance (B...).

    Example:
        >>> import torch, directloss as dl
        >>> dl.Knapsack([3, 2, 2], capacity=4).solve(torch.tensor([4.0, 3.0, 2.0]))
        tensor([0., 1., 1.])
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"weights": 1, "capacity": 0}
    proven = True

    def __init__(self, weights: Tensor | Sequence[Any], capacity: int | Tensor):
        self.weights, self.capacity = _numbers("weights", weights), _numbers("capacity", capacity)
        if self.weights.dim() < 1:
            raise ValueError("weights are one number, expected (n,) or (B..., n): a weight for each item")
        self._validate_values()

    def _validate(self) -> None:
        for name, tensor, items in (("weights", self.weights, True), ("capacity", self.capacity, False)):
            wrong = (tensor < 0) | (tensor > _LARGEST)
            if tensor.is_floating_point():
                wrong = wrong | (tensor != tensor.floor())
            if wrong.any():
                where = wrong.nonzero()[0].tolist()
                value = tensor[tuple(where)].item()
                item = f", item {where.pop()}" if items else ""
                raise ValueError(
                    f"{name} of instance {tuple(where)}{item}: got {value:g}, expected a whole number from 0 to 2^53; "
                    "round it, or scale weights and capacity up first"
                )

    def _check_entries(self, entries: torch.Size) -> None:
        if self.weights.shape[-1:] != entries:
            raise ValueError(
                f"weights are for {self.weights.shape[-1]} items, but the scores have {entries[0]}; they must agree"
            )

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        from directloss.structures.kernels.knapsack import pack

        (scores,) = parts
        batch, price = scores_and_cost(scores, cost, 1)
        weights = repeating(self.weights.to(torch.int64), scores.shape[:-1], scores.shape[-1:])
        capacity = repeating(self.capacity.to(torch.int64), scores.shape[:-1], ())
        y = np.zeros((len(steps) * len(batch), batch.shape[1]), batch.dtype)
        at = np.asarray(steps, np.float64)

        def work(first: int, last: int) -> int:
            return int(pack(batch, price, at, weights, capacity, y, first, last))

        sums = batch.shape[1] * (1 + min(int(capacity.max()), int(weights.sum(1).max())))
        too_large = [problem for problem in threads.split(work, len(y), least=_LEAST_WORK // sums) if problem >= 0]
        if too_large:
            instance = place(min(too_large) % len(batch), scores.shape[:-1])
            raise ValueError(
                f"instance {instance} has {batch.shape[1]} items and a capacity up to {int(capacity.max())}, too many "
                "for a dynamic programme; round weights and capacity to larger units"
            )
        values = torch.from_numpy(y).reshape(len(steps), *scores.shape).to(scores.device)
        return (Vertices(scores.shape[-1:], None, values),)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        weights, capacity = self._one()
        every, filled = (
            torch.zeros(1, len(scores), dtype=torch.bool, device="cpu"),
            torch.zeros(1, dtype=torch.int64, device="cpu"),
        )
        for item, weight in enumerate(weights):
            fits = filled + weight <= capacity
            more = every[fits]
            more[:, item] = True
            every, filled = torch.cat([every, more]), torch.cat([filled, filled[fits] + weight])
        return (Vertices(scores.shape, None, every.to(scores)),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        weights, capacity = self._one()
        ways = Counter({0: 1})  # how many sets have which weight
        for weight in weights:
            for filled, count in list(ways.items()):
                if filled + weight <= capacity:
                    ways[filled + weight] += count
        return sum(ways.values())

    def _one(self) -> tuple[list[int], int]:
        """The weights and the capacity of the only instance."""
        return [int(weight) for weight in self.weights.flatten()], int(self.capacity)

    def __repr__(self) -> str:
        capacity = "..." if self.capacity.numel() != 1 else f"{self.capacity.item():g}"
        return f"Knapsack(weights=..., capacity={capacity})"


def _numbers(name: str, numbers: Any) -> Tensor:
    try:
        found = torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}: got {type(numbers).__name__}, expected whole numbers") from None
    if found.dtype == torch.bool or found.is_complex():
        raise TypeError(f"{name} are {found.dtype}, expected whole numbers")
    return found
