"""What a structure is: a finite set Y of 0/1 tensors with a fast exact maximiser of ``<scores, y>``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from directloss.shapes import check_cost

# Sums along augmenting paths must not overflow float64.
LARGEST_SCORE = 1e150
MOST_STRUCTURES = 1_000_000


class Structure(ABC):
    """A set of structures over entries ``*E``; scores carry any number of batch axes before them.

    A subclass sets ``entry_dims`` (the length of ``*E``), says in ``check_shape`` which entries it takes, and
    implements ``enumerate`` and ``_ones``; ``_ones_along`` only where solving a family of scores together pays.
    """

    entry_dims: int

    @abstractmethod
    def check_shape(self, entries: Sequence[int]) -> None:
        """Raise ValueError where the structure does not exist over ``entries``."""

    @abstractmethod
    def enumerate(self, entries: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """Every structure over ``entries``, as a tensor (N, *E). For small cases: tests and audits."""

    def count(self, entries: Sequence[int]) -> int:
        """How many structures there are over ``entries``; a subclass that knows need not make them to count them."""
        return len(self.enumerate(entries))

    @abstractmethod
    def _ones(self, scores: Tensor) -> Tensor:
        """Where a maximiser of checked, non-empty scores is one: positions (..., K) in the flattened entries.

        In an order that depends on the structure alone, and -1 in the end where an instance has fewer than K.
        """

    def _ones_along(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
        found = [self._ones(scores + step * cost) for step in steps]
        most = max(ones.shape[-1] for ones in found)
        return torch.stack([torch.nn.functional.pad(ones, (0, most - ones.shape[-1]), value=-1) for ones in found])

    @torch.no_grad()
    def solve(self, scores: Tensor) -> Tensor:
        """The structure that maximises ``<scores, y>``: 0/1, shaped like ``scores`` (..., *E). Never differentiates."""
        self._check(scores, "scores")
        return self.dense(self._ones(scores), scores) if scores.numel() else torch.zeros_like(scores)

    def solve_along(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
        """The maximisers of ``scores + t * cost`` for every t in ``steps``: (len(steps), ..., *E).

        ``cost`` broadcasts to ``scores``. Each solve may start from the one before.
        """
        return self.dense(self.ones_along(scores, cost, steps), scores)

    def dense(self, ones: Tensor, like: Tensor) -> Tensor:
        """The 0/1 tensors whose ones stand at ``ones`` (..., K), with the entries, dtype and device of ``like``."""
        entries = like.shape[like.dim() - self.entry_dims :]
        y = like.new_zeros((*ones.shape[:-1], entries.numel()))
        # Where -1 pads, it adds nothing, to an entry that may be a one itself.
        y.scatter_add_(-1, ones.clamp_min(0), (ones >= 0).to(y.dtype))
        return y.reshape(*ones.shape[:-1], *entries)

    @torch.no_grad()
    def ones_along(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
        """``solve_along`` in its compact form: the positions of the ones in the flattened entries, (T, ..., K).

        A structure has few ones, so this is what estimators work with. -1 stands where one has fewer than K.
        """
        largest = self._check(scores, "scores")
        largest_cost = self._check(cost, "cost")
        if len(steps) == 0 or not all(math.isfinite(step) for step in steps):
            raise ValueError(f"steps are {steps!r}; expected one finite number or more")
        check_cost(cost, scores)
        reach = largest + max(abs(step) for step in steps) * largest_cost
        if reach > LARGEST_SCORE:
            raise ValueError(f"scores + step * cost exceed {LARGEST_SCORE:g}, up to {reach:g}; scale them down")
        if not scores.numel():
            return scores.new_zeros((len(steps), *self.batch_shape(scores), 0), dtype=torch.int64)
        # Sums in half precision would tie, and in float32 the largest would overflow.
        wide = torch.promote_types(torch.promote_types(scores.dtype, cost.dtype), torch.float32)
        if reach > torch.finfo(wide).max / 4:
            wide = torch.float64
        return self._ones_along(scores.to(wide), cost.to(wide), steps)

    def batch_shape(self, scores: Tensor) -> torch.Size:
        """The axes of scores before the entries."""
        if scores.dim() < self.entry_dims:
            raise ValueError(
                f"scores have shape {tuple(scores.shape)}, but {type(self).__name__} needs at least "
                f"{self.entry_dims} axes, its entries last"
            )
        return scores.shape[: scores.dim() - self.entry_dims]

    def _check(self, tensor: Tensor, name: str) -> float:
        """Raise where ``tensor`` cannot be scores of this structure; return its largest magnitude."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, expected a torch.Tensor (torch.as_tensor makes one)")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} are {tensor.dtype}, expected a floating-point dtype: call .float() on them")
        if name == "scores":
            self.check_shape(tensor.shape[len(self.batch_shape(tensor)) :])
        if not tensor.numel():
            return 0.0
        low, high = (bound.item() for bound in torch.aminmax(tensor))
        if not (math.isfinite(low) and math.isfinite(high)):
            bad = int((~torch.isfinite(tensor)).sum())
            raise ValueError(
                f"{name} hold {bad} NaN or infinite entries of {tensor.numel()}; every entry must be finite "
                "(a forbidden entry is a mask of the structure, not an infinite score)"
            )
        largest = max(abs(low), abs(high))
        if largest > LARGEST_SCORE:
            raise ValueError(f"{name} reach {largest:g}, beyond {LARGEST_SCORE:g}; scale them down")
        return largest

    def check_count(self, entries: Sequence[int], most: int = MOST_STRUCTURES) -> None:
        """Raise ValueError where there are more than ``most`` structures over ``entries``."""
        self.check_shape(entries)
        count = self.count(entries)
        if count > most:
            many = f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"
            raise ValueError(
                f"{self!r} over {tuple(entries)} has {many} structures, more than the {most:,} that are enumerated; "
                "take a smaller instance"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
