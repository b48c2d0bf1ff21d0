"""How relevant and irrelevant items interleave."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices, as_parts
from directloss.structures.arrays import as_array, pieces
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask, check_mask_entries

# Below this much work (instances x n^2) handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000


class Interleaving(Structure):
    """How P relevant and N irrelevant items interleave in a ranking: retrieval by average precision. ``*E`` is (n,).

    A ranking is scored by the pairs that it puts right or wrong (Yue et al. 2007):

        <scores, y> = 1 / (P N) sum_{i relevant, j irrelevant} Y_ij (scores_i - scores_j),

    with Y_ij = 1 if i stands before j and -1 otherwise. So y_i = (N - 2 r_i) / (P N) for a relevant item after r_i
    irrelevant ones, and y_j = (P - 2 q_j) / (P N) for an irrelevant item after q_j relevant ones. Where P or N is 0
    there is nothing to rank, and y is 0.

    Its average precision is not linear in y. ``average_precision_loss`` is a cost for ``dl.direct_loss``, and
    ``average_precision_augmented`` its exact loss-augmented maximiser:

        dl.direct_loss(scores, ranking.average_precision_loss, ranking, epsilon=-10.0,
                       augmented=ranking.average_precision_augmented)

    Args:
        positive: boolean, True where an item is relevant; (n,) or (B..., n).

    Example:
        >>> import torch, directloss as dl
        >>> ranking = dl.Interleaving(torch.tensor([True, False, False]))
        >>> y = ranking.solve(torch.tensor([2.0, 3.0, 1.0]))
        >>> y, ranking.average_precision_loss(y)
        (tensor([ 0.0000,  0.5000, -0.5000]), tensor(0.5000))
    """

    entry_dims = 1
    data: ClassVar[Mapping[str, int]] = {"positive": 1}
    proven = True

    def __init__(self, positive: Tensor):
        check_mask("positive", positive, 1, "an item is relevant")
        self.positive = positive

    def average_precision_loss(self, y: Tensor) -> Tensor:
        """1 less the average precision of rankings y (..., n): (...). Where nothing is relevant it is 0."""
        self._check_entries(y.shape[-1:])
        positive = self.positive.to(y.device)
        relevant, irrelevant = _counts(positive)
        with torch.no_grad():
            before = (irrelevant * (1 - relevant * y.detach().double()) / 2).round()
            before = torch.where(positive, before, torch.inf).sort(-1).values
            rank = torch.arange(1, y.shape[-1] + 1, device=y.device)
            precision = (rank / (rank + before)).sum(-1) / relevant.squeeze(-1).clamp_min(1)
            return torch.where(relevant.squeeze(-1) == 0, 0.0, 1 - precision).to(y.dtype)

    @torch.no_grad()
    def average_precision_augmented(self, theta: Tensor, epsilon: float | Tensor) -> Tensor:
        """The ranking y that maximises ``<theta, y> + epsilon * average_precision_loss(y)``, for either sign, exactly.

        ``theta`` is (B..., n), and ``epsilon`` a number or one for each instance (B...).
        """
        from directloss.structures.kernels.interleave import interleave

        parts = as_parts(theta, "theta")
        batch = self.batch_shape(parts)
        if not parts[0].numel():
            return torch.zeros_like(parts[0])
        if not torch.isfinite(parts[0]).all():
            raise ValueError("theta holds NaN or infinite entries; every entry must be finite")
        n = theta.shape[-1]
        weights = as_array(torch.as_tensor(epsilon, dtype=torch.float64).expand(batch)).reshape(-1)

        def count(scores: Tensor, positive: Tensor, piece: slice) -> Tensor:
            values, relevant, own = as_array(scores.double()), as_array(positive), weights[piece]
            before = np.empty(values.shape, np.int64)
            threads.split(
                lambda first, last: int(interleave(values, relevant, own, before, first, last)),
                len(values),
                least=_LEAST_WORK // n**2,
            )
            return torch.from_numpy(before).to(scores.device)

        return self._of_sorted(parts[0], count)

    def _check_entries(self, entries: torch.Size) -> None:
        check_mask_entries("positive", self.positive, entries)

    def _of_counts(self, before: Tensor, dtype: torch.dtype, positive: Tensor) -> Tensor:
        """y of how many of the other kind stand before each item, rounded in the same way wherever y is made."""
        relevant, irrelevant = _counts(positive)
        others = torch.where(positive, irrelevant, relevant)
        pairs = (relevant * irrelevant).clamp_min(1)
        y = torch.where(relevant * irrelevant == 0, 0, others - 2 * before).double() / pairs
        return y.to(torch.promote_types(dtype, torch.float32))

    def _of_sorted(self, scores: Tensor, count: Callable[[Tensor, Tensor, slice], Tensor]) -> Tensor:
        """y of rankings, of which ``count`` says how many of the other kind stand before each item.

        It is given sorted scores, which of them are relevant and which piece of the batch they are, each (I, n).
        """
        n = scores.shape[-1]
        positive = self.positive.to(scores.device)
        rows, every = (tensor.expand_as(scores).reshape(-1, n) for tensor in (scores, positive))
        y = torch.empty_like(rows)
        for piece in pieces(len(rows), n):
            ordered = rows[piece].sort(dim=-1, descending=True, stable=True)
            before = count(ordered.values, every[piece].gather(-1, ordered.indices), piece)
            placed = torch.empty_like(before).scatter_(-1, ordered.indices, before)
            y[piece] = self._of_counts(placed, scores.dtype, every[piece]).to(scores.dtype)
        return y.reshape(scores.shape)

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        def count(scores: Tensor, positive: Tensor, piece: slice) -> Tensor:
            return torch.where(positive, (~positive).cumsum(-1), positive.cumsum(-1))

        return (Vertices(parts[0].shape[-1:], None, self._of_sorted(parts[0], count)),)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        positive = self.positive.flatten().tolist()
        kinds = tuple(frozenset(i for i, one in enumerate(positive) if one is kind) for kind in (True, False))
        rows = []
        for start in (0, 1) if all(kinds) else (0 if kinds[0] else 1,):
            for blocks in _alternating(kinds[start], kinds[1 - start]):
                before, passed = [0] * len(positive), [0, 0]
                for place, block in enumerate(blocks):
                    for item in block:
                        before[item] = passed[1 - place % 2]
                    passed[place % 2] += len(block)
                rows.append(before)
        every = torch.tensor(rows, dtype=torch.int64, device=parts[0].device).reshape(len(rows), len(positive))
        return (
            Vertices(
                parts[0].shape,
                None,
                self._of_counts(every, torch.float64, self.positive.to(every.device)).to(parts[0].dtype),
            ),
        )

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        """A poly-Bernoulli number: the patterns of before and after are the lonesum matrices (Brewbaker 2008)."""
        relevant = int(self.positive.sum())
        p, q = _stirling(relevant + 1), _stirling(self.positive.numel() - relevant + 1)
        return sum(math.factorial(m) ** 2 * p[m + 1] * q[m + 1] for m in range(min(len(p), len(q)) - 1))


def _counts(positive: Tensor) -> tuple[Tensor, Tensor]:
    """How many items are relevant, and how many are not, (..., 1)."""
    relevant = positive.sum(-1, keepdim=True)
    return relevant, positive.shape[-1] - relevant


def _alternating(own: frozenset[int], other: frozenset[int]) -> Iterator[tuple[frozenset[int], ...]]:
    """Every way to write down both sets in alternating blocks, none empty, beginning with one of ``own``."""
    if not own:
        return
    items = sorted(own)
    for bits in range(1, 2 ** len(items)):
        block = frozenset(item for index, item in enumerate(items) if bits >> index & 1)
        rest = own - block
        if not rest and not other:
            yield (block,)
        for after in _alternating(other, rest):
            yield (block, *after)


def _stirling(n: int) -> list[int]:
    """In how many ways n items fall into k blocks, for k = 0 to n."""
    row = [1]
    for _ in range(n):
        row = [0, *(row[k - 1] + (k * row[k] if k < len(row) else 0) for k in range(1, len(row) + 1))]
    return row
