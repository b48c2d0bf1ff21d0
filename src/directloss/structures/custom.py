"""Any maximiser of the user's."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from directloss.structures.base import Structure


class _Custom(Structure):
    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        entry_dims: int,
        batched: bool,
        structures: Callable[[Sequence[int]], Tensor] | None,
    ):
        self.function, self.entry_dims, self.batched, self.structures = function, entry_dims, batched, structures

    def check_shape(self, entries: Sequence[int]) -> None:
        pass  # the user's function is the judge

    def enumerate(self, entries: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        if self.structures is None:
            raise ValueError("this custom structure cannot be enumerated: pass structures= to dl.custom")
        return self.structures(entries).to(dtype)

    def _ones(self, scores: Tensor) -> Tensor:
        batch = self.batch_shape(scores)
        entries = scores.shape[len(batch) :]
        if self.batched:
            y = self._call(scores)
        else:
            y = torch.stack([self._call(one) for one in scores.reshape(-1, *entries)])
        y = y.reshape(*batch, -1)
        ones = y.argsort(dim=-1, descending=True, stable=True)
        counts = y.sum(-1, dtype=torch.int64)
        slots = torch.arange(int(counts.max()), device=ones.device)
        return torch.where(slots < counts.unsqueeze(-1), ones[..., : len(slots)], -1)

    def _call(self, scores: Tensor) -> Tensor:
        y = self.function(scores.clone())  # one that works in place keeps to its own copy
        name = getattr(self.function, "__name__", "the custom maximiser")
        if not isinstance(y, Tensor):
            raise TypeError(f"{name} returned {type(y).__name__}, expected a torch.Tensor shaped like its scores")
        if y.shape != scores.shape:
            raise ValueError(
                f"{name} returned shape {tuple(y.shape)} for scores of shape {tuple(scores.shape)}; "
                "it must return one structure for each instance, shaped like the scores "
                "(pass batched=False if it takes one instance at a time)"
            )
        y = y.to(device=scores.device, dtype=torch.float32)
        if not ((y == 0) | (y == 1)).all():
            raise ValueError(f"{name} returned entries other than 0 and 1; a structure is a 0/1 tensor")
        return y

    def __repr__(self) -> str:
        return f"custom({getattr(self.function, '__name__', self.function)!s})"


def custom(
    function: Callable[[Tensor], Tensor],
    entry_dims: int = 1,
    batched: bool = True,
    structures: Callable[[Sequence[int]], Tensor] | None = None,
) -> Structure:
    """Make a structure of any function that maximises ``<scores, y>``.

    Args:
        function: takes scores and returns the best structure, same shape.
        entry_dims: how many of the last axes belong to one structure.
        batched: False calls ``function`` with one instance at a time.
        structures: optional, entries -> all structures (N, *E), for ``enumerate``.

    Example:
        >>> import torch, directloss as dl
        >>> largest = dl.custom(lambda s: (s == s.max(-1, keepdim=True).values).float())
        >>> largest.solve(torch.tensor([[1.0, 3.0, 2.0]]))
        tensor([[0., 1., 0.]])
    """
    if not callable(function):
        raise TypeError(f"function is {type(function).__name__}, expected a callable")
    if entry_dims < 1:
        raise ValueError(f"entry_dims is {entry_dims}, expected at least 1")
    return _Custom(function, entry_dims, batched, structures)
