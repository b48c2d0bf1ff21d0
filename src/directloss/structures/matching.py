"""Bipartite matchings: each row to its own column."""

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.shapes import broadcasts
from directloss.structures.base import Structure

# Below this much work (instances x n^2) handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000
# Beyond this much (steps x instances x n^3, a bound) a solve may last long enough for somebody to press Ctrl-C.
_LONG_WORK = 5e8


class Matching(Structure):
    """Perfect matchings of n rows and m columns; with n != m the smaller side is matched completely. ``*E`` is (n, m).

    Args:
        forbidden: boolean mask, True where a pair may never be matched; broadcasts to the scores.
    """

    entry_dims = 2

    def __init__(self, forbidden: Tensor | None = None):
        if forbidden is not None:
            if not isinstance(forbidden, Tensor) or forbidden.dtype != torch.bool:
                got = forbidden.dtype if isinstance(forbidden, Tensor) else type(forbidden).__name__
                raise TypeError(f"forbidden is {got}, expected a boolean tensor, True where a pair is forbidden")
            if forbidden.dim() < 2:
                raise ValueError(f"forbidden has shape {tuple(forbidden.shape)}, expected (..., n, m)")
        self.forbidden = forbidden

    def check_shape(self, entries: Sequence[int]) -> None:
        if min(entries) < 1:
            raise ValueError(f"scores have entries of shape {tuple(entries)}; expected (n, m) with n, m >= 1")
        if self.forbidden is not None and self.forbidden.shape[-2:] != torch.Size(entries):
            raise ValueError(
                f"forbidden is a mask of {tuple(self.forbidden.shape[-2:])} entries, but the scores have "
                f"{tuple(entries)}; they must agree"
            )

    def enumerate(self, entries: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        self.check_shape(entries)
        n, m = entries
        if n > m:
            turned = Matching(None if self.forbidden is None else self.forbidden.mT)
            return turned.enumerate((m, n), dtype).mT.contiguous()
        Matching().check_count(entries)
        columns = torch.tensor(list(permutations(range(m), n)))
        every = torch.nn.functional.one_hot(columns, m).to(dtype)
        if self.forbidden is not None:
            if self.forbidden.dim() > 2:
                raise ValueError("a mask with batch axes has no single set of structures; enumerate one instance's")
            every = every[~(every.bool() & self.forbidden.cpu()).flatten(1).any(1)]
        return every

    def count(self, entries: Sequence[int]) -> int:
        if self.forbidden is not None:
            return super().count(entries)
        return math.perm(max(entries), min(entries))

    def _ones(self, scores: Tensor) -> Tensor:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return self._ones_along(wide, wide, (0.0,))[0]

    def _ones_along(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
        n, m = scores.shape[-2:]
        if n > m:
            turned = Matching(None if self.forbidden is None else self.forbidden.mT)
            rows = turned._columns_along(scores.mT, cost.mT, steps)
            return rows * m + torch.arange(m, device=rows.device)
        columns = self._columns_along(scores, cost, steps)
        return torch.arange(0, n * m, m, device=columns.device) + columns

    def _columns_along(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
        """Each row's column, (len(steps), ..., n), for scores with no more rows than columns."""
        from directloss.structures.kernels.assignment import assign

        if self.forbidden is not None and not broadcasts(self.forbidden.shape, scores.shape):
            raise ValueError(
                f"forbidden has shape {tuple(self.forbidden.shape)}, which does not broadcast to the scores' "
                f"{tuple(scores.shape)}"
            )
        # Potentials of a large step would drown the scores of a small one in rounding, so small steps come first.
        order = sorted(range(len(steps)), key=lambda step: abs(steps[step]))
        batch = _numpy(scores).reshape(-1, *scores.shape[-2:])
        price = _periodic(cost, scores.shape)
        forbidden = np.empty((0, 0, 0), np.bool_)
        if self.forbidden is not None:
            forbidden = _periodic(self.forbidden, scores.shape)
        columns = np.empty((len(steps), *batch.shape[:2]), np.int64)
        stop = np.zeros(1, np.int64)
        at = np.asarray([steps[step] for step in order], np.float64)

        def work(first: int, last: int) -> int:
            return int(assign(batch, price, forbidden, at, columns, first, last, stop))

        long = len(steps) * batch.size * batch.shape[1] > _LONG_WORK
        infeasible = max(threads.split(work, len(batch), least=_LEAST_WORK // batch[0].size, stop=stop, long=long))
        if infeasible >= 0:
            where = np.unravel_index(infeasible, scores.shape[:-2]) if scores.dim() > 2 else ()
            raise ValueError(
                f"the mask leaves instance {tuple(int(i) for i in where)} without a perfect matching; "
                "allow more pairs there"
            )
        columns = columns[np.argsort(order)]
        return torch.from_numpy(columns).reshape(len(steps), *scores.shape[:-1]).to(scores.device)

    def __repr__(self) -> str:
        return "Matching()" if self.forbidden is None else "Matching(forbidden=...)"


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()


def _periodic(tensor: Tensor, shape: torch.Size) -> np.ndarray:
    """``tensor`` without the leading axes along which it only repeats: (period, n, m), not copied for every sample."""
    while tensor.dim() > 2 and (tensor.shape[0] == 1 or tensor.stride(0) == 0):
        tensor = tensor[0]
    return _numpy(tensor.expand(shape[len(shape) - tensor.dim() :])).reshape(-1, *shape[-2:])
