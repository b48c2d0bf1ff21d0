"""Dependency trees: each word its head."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices
from directloss.structures.arrays import instances, repeating
from directloss.structures.base import Structure
from directloss.structures.partition import log_sum_of_trees, only_first
from directloss.transforms import inside_transform

# Below this much work (instances x n^2) handing a part to another thread costs more than it gains.
_LEAST_WORK = 20_000


class Arborescence(Structure):
    """Each word its head, without a cycle: dependency trees, which need not be projective. ``*E`` is (n, n + 1).

    Row i has the scores of word i + 1's heads: column 0 is the root and column j is word j. A word is never its own
    head, so that the entries (i, i + 1) are never used.

    Args:
        lengths: whole numbers (B...), how many words each instance has; entries beyond are 0. None: all n.
        single_root: exactly one word has the root as its head; otherwise one or more.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[1.0, 0.0, 5.0], [2.0, 6.0, 0.0]])  # words 1 and 2 would like each other
        >>> dl.Arborescence().solve(scores)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """

    entry_dims = 2
    data: ClassVar = {"lengths": 0}
    proven = True
    summable = True

    def __init__(self, lengths: Tensor | Sequence[int] | int | None = None, single_root: bool = False):
        if not isinstance(single_root, bool):
            raise TypeError(f"single_root is {single_root!r}, expected True or False")
        self.lengths = None if lengths is None else _whole_numbers(lengths)
        self.single_root = single_root
        self._validate_values()

    def _validate(self) -> None:
        if self.lengths is not None and (self.lengths < 0).any():
            where = tuple((self.lengths < 0).nonzero()[0].tolist())
            raise ValueError(f"lengths: instance {where} has {int(self.lengths[where])} words, expected 0 or more")

    def _check_entries(self, entries: torch.Size) -> None:
        if entries[1] != entries[0] + 1:
            raise ValueError(
                f"scores have entries of shape {tuple(entries)}, expected (n, n + 1): a row for each of n words, and a "
                "column for each head, the root first"
            )
        if self.lengths is not None and not inside_transform() and (self.lengths > entries[0]).any():
            where = tuple((self.lengths > entries[0]).nonzero()[0].tolist())
            raise ValueError(
                f"lengths: instance {where} has {int(self.lengths[where])} words, but the scores have rows for "
                f"{entries[0]}; give more rows, or a smaller length"
            )

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        from directloss.structures.kernels.arborescence import attach

        (scores,) = parts
        batch, (n, width) = scores.shape[:-2], scores.shape[-2:]
        weights, prices = instances(scores, 2), repeating(cost, batch, (n, width))
        lengths = torch.tensor(n, device="cpu") if self.lengths is None else self.lengths
        counts = repeating(lengths, batch, ()).astype(np.int64)
        positions = np.empty((len(steps), len(weights), n), np.int64)
        at = np.asarray(steps, np.float64)

        def work(first: int, last: int) -> int:
            return int(attach(weights, prices, counts, self.single_root, at, positions, first, last))

        threads.split(work, len(weights), least=_LEAST_WORK // (n * width))
        found = torch.from_numpy(positions).reshape(len(steps), *batch, n).to(scores.device)
        values = None
        if self.lengths is not None:
            words = torch.arange(n, device=scores.device) < self.lengths.to(scores.device).unsqueeze(-1)
            values = words.to(scores.dtype).expand_as(found)
        return (Vertices(torch.Size((n, width)), found, values),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        return log_sum_of_trees(only_first(parts[0], self.lengths), self.single_root)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        most, width = scores.shape
        n = self._words(most)
        others = [[head for head in range(n + 1) if head != word] for word in range(1, n + 1)]
        heads = torch.tensor(others, dtype=torch.int64, device="cpu").reshape(n, n)
        numbers = torch.arange(n**n, device="cpu").unsqueeze(-1)
        choice = numbers // n ** torch.arange(n, device="cpu") % n if n else numbers[:, :0]
        heads = heads.expand(len(choice), n, n).gather(2, choice.unsqueeze(-1)).squeeze(-1)
        # Without a cycle everybody's n-th head is the root.
        path = torch.cat([heads.new_zeros(len(heads), 1), heads], 1)
        reached = path
        for _ in range(n):
            reached = path.gather(1, reached)
        allowed = (reached == 0).all(1)
        if self.single_root and n:
            allowed &= (heads == 0).sum(1) == 1
        positions = torch.arange(most, device="cpu") * width + torch.nn.functional.pad(heads[allowed], (0, most - n))
        values = (torch.arange(most, device="cpu") < n).to(scores.dtype).expand_as(positions)
        return (Vertices(scores.shape, positions.to(scores.device), values.to(scores.device)),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        n = self._words(len(parts[0]))
        return int(n ** (n - 1) if self.single_root else (n + 1) ** (n - 1)) if n else 1

    def _words(self, most: int) -> int:
        """Of one instance."""
        return most if self.lengths is None else int(self.lengths)

    def __repr__(self) -> str:
        given = [] if self.lengths is None else ["lengths=..."]
        return f"Arborescence({', '.join(given + ['single_root=True'] * self.single_root)})"


def _whole_numbers(lengths: Any) -> Tensor:
    found = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(f"lengths are {found.dtype}, expected whole numbers")
    return found
