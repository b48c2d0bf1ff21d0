"""Bipartite matchings: each row to its own column."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.later import later
from directloss.parts import Vertices
from directloss.structures.arrays import instances, place, repeating
from directloss.structures.base import MOST_STRUCTURES, Structure
from directloss.structures.checks import check_mask, check_mask_entries

_kernels = later("directloss.structures.kernels.assignment")
# Below this much work (instances x n^2) handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000
# A first guess at the potentials costs a smaller matrix more than it gains.
_LEAST_GUESS = 16
# Beyond this much (steps x instances x n^3, a bound) a solve may last long enough for somebody to press Ctrl-C.
_LONG_WORK = 5e8


class Matching(Structure):
    """Perfect matchings of n rows and m columns; with n != m the smaller side is matched completely. ``*E`` is (n, m).

    Args:
        forbidden: boolean mask, True where a pair may never be matched; broadcasts to the scores.

    Example:
        >>> import torch, directloss as dl
        >>> dl.Matching().solve(torch.tensor([[3.0, 1.0], [2.0, 1.0]]))
        tensor([[1., 0.],
                [0., 1.]])
    """

    entry_dims = 2
    data: ClassVar[Mapping[str, int]] = {"forbidden": 2}
    proven = True

    def __init__(self, forbidden: Tensor | None = None):
        if forbidden is not None:
            check_mask("forbidden", forbidden, 2, "a pair is forbidden")
        self.forbidden = forbidden

    def _check_entries(self, entries: torch.Size) -> None:
        if min(entries) < 1:
            raise ValueError(f"scores have entries of shape {tuple(entries)}; expected (n, m) with n, m >= 1")
        check_mask_entries("forbidden", self.forbidden, entries)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        n, m = scores.shape
        turned = n > m
        columns = torch.tensor(list(permutations(range(max(n, m)), min(n, m))), device=scores.device)
        if self.forbidden is not None:
            allowed = ~_vertices(columns, scores.shape, turned).at(self.forbidden).any(-1)
            columns = columns[allowed]
        return (_vertices(columns, scores.shape, turned),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        n, m = parts[0].shape
        largest = math.perm(max(n, m), min(n, m))
        if self.forbidden is None or largest > MOST_STRUCTURES:
            return largest  # with forbidden pairs an upper bound, known without making them all
        return super()._count(parts)

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        (scores,) = parts
        n, m = scores.shape[-2:]
        turned = n > m
        forbidden = self.forbidden
        cost = cost.expand(*cost.shape[:-2], n, m) if cost.dim() > 1 else cost.expand(n, m)
        if turned:
            scores, cost = scores.mT, cost.mT
            forbidden = None if forbidden is None else forbidden.mT
        columns = _columns_along(scores, cost, forbidden, steps)
        return (_vertices(columns, torch.Size((n, m)), turned),)


def _vertices(columns: Tensor, entries: torch.Size, turned: bool) -> Vertices:
    """Each row's column (turned: each column's row) as vertices."""
    line = torch.arange(columns.shape[-1], device=columns.device)
    return Vertices.of_coordinates(entries, *((columns, line) if turned else (line, columns)))


def _columns_along(scores: Tensor, cost: Tensor, mask: Tensor | None, steps: Sequence[float]) -> Tensor:
    """Each row's column, (len(steps), ..., n), for scores with no more rows than columns."""
    assign = _kernels().assign
    # Potentials of a large step would drown the scores of a small one in rounding, so small steps come first.
    order = sorted(range(len(steps)), key=lambda step: abs(steps[step]))
    batch = instances(scores, 2)
    price = repeating(cost, scores.shape[:-2], scores.shape[-2:])
    forbidden = np.empty((0, 0, 0), np.bool_)
    if mask is not None:
        forbidden = repeating(mask, scores.shape[:-2], scores.shape[-2:])
    columns = np.empty((len(steps), *batch.shape[:2]), np.int64)
    stop = np.zeros(1, np.int64)
    at = np.asarray([steps[step] for step in order], np.float64)
    rows = batch.shape[1]

    def work(first: int, last: int) -> int:
        fit = np.empty((4, rows)) if rows >= _LEAST_GUESS else None
        return int(assign(batch, price, forbidden, at, columns, first, last, stop, fit))

    long = len(steps) * batch.size * batch.shape[1] > _LONG_WORK
    infeasible = max(threads.split(work, len(batch), least=_LEAST_WORK // batch[0].size, stop=stop, long=long))
    if infeasible >= 0:
        where = place(infeasible, scores.shape[:-2])
        raise ValueError(f"the mask leaves instance {where} without a perfect matching; allow more pairs there")
    if len(order) > 1:
        columns = columns[np.argsort(order)]
    return torch.from_numpy(columns.reshape(len(steps), *scores.shape[:-1])).to(scores.device)
