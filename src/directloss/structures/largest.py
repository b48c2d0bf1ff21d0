"""The k largest entries, for every step: what one of n and k of n have in common."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.later import later
from directloss.parts import Vertices, on_cpu
from directloss.structures.arrays import repeating, scores_and_cost

_kernels = later("directloss.structures.kernels.largest")
# Below this many entries handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000
_NO_MASK = np.empty((0, 0), np.bool_)


def largest_entries(scores: Tensor, cost: Tensor, steps: Sequence[float], k: int, mask: Tensor | None) -> Vertices:
    """Where the k largest entries of ``scores + step * cost`` are, (T, ..., k), in order.

    On the CPU the first of tied entries are taken; other devices solve with torch, and break ties in its way.
    """
    entries = scores.shape[-1:]
    if not on_cpu(scores):
        stacked = torch.stack([torch.add(scores, cost, alpha=step) for step in steps])
        if mask is not None:
            stacked = stacked.masked_fill(~mask, -torch.inf)
        return Vertices(entries, torch.topk(stacked, k, sorted=False).indices.sort(-1).values, None)
    largest = _kernels().largest
    batch = scores.shape[:-1]
    flat, price = scores_and_cost(scores, cost, 1)
    allowed = _NO_MASK if mask is None else repeating(mask, batch, entries)
    positions, at = np.empty((len(steps), *batch, k), np.int64), np.array(steps, np.float64)
    out = positions.reshape(len(steps), len(flat), k)

    def work(first: int, last: int) -> int:
        return int(largest(flat, price, allowed, at, k, out, first, last))

    threads.split(work, len(flat), least=_LEAST_WORK // len(flat[0]))
    return Vertices(entries, torch.from_numpy(positions), None)
