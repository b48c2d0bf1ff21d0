"""SparseMAP's active set on any maximiser: the structures whose convex combination is the solution, a solve each."""

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.layout import Layout, pack
from directloss.losses.solving import Tensors
from directloss.parts import Vertices
from directloss.structures.base import Structure

_MOST_SOLVES = 10_000
_LEAST_INSTANCES = 8  # for another thread


class ActiveSet:
    """Called like a maximiser; afterwards it knows the layout of the vertices that it returned as tensors."""

    layout: Layout

    def __call__(self, structure: Structure, parts: Tensors, entries: tuple[torch.Size, ...]) -> Tensors:
        """Which of A slots are active, (B..., A), and the tensors of the vertices there, (B..., A, K).

        Of their convex combinations one maximises ``<scores, y> - |y|^2 / 2``, the norm being that of the first part.
        """
        first, *factors = (part.to(torch.float64) for part in parts)
        batch = first.shape[: first.dim() - len(entries[0])]
        count, size = batch.numel(), entries[0].numel()
        flat = first.reshape(count, size).cpu().numpy()
        open_, counts, point = np.ones(count, np.bool_), np.zeros(count, np.int64), np.zeros((count, size))
        state = _room(count, size, 4)
        joined: list[tuple[Vertices, ...]] = []
        while open_.any():
            if len(joined) == _MOST_SOLVES:
                raise RuntimeError(f"sparsemap on {structure!r} did not end after {_MOST_SOLVES:,} solves")
            theta = torch.from_numpy(flat - point).reshape(first.shape).to(first.device)
            found = tuple(v.select(0) for v in structure.maximize((theta, *factors), entries, None, (0.0,)))
            joined.append(found)
            dense = found[0].dense(torch.float64).reshape(count, size).cpu().numpy()
            values = (flat * dense).sum(1)
            for v, factor in zip(found[1:], factors, strict=True):
                values += v.inner(factor).reshape(count).cpu().numpy()
            if counts.max() + 1 > state[0].shape[1]:
                state = _room(count, size, 2 * state[0].shape[1], state)
            arguments = (dense, values, len(joined) - 1, open_, counts, *state, point)
            _combine(arguments, count)
        return self._collect(joined, counts, state[-1], batch, first.device)

    def _collect(
        self,
        joined: list[tuple[Vertices, ...]],
        counts: np.ndarray,
        number: np.ndarray,
        batch: torch.Size,
        device: torch.device,
    ) -> Tensors:
        most = max(1, int(counts.max(initial=0)))
        active = torch.arange(most) < torch.from_numpy(counts).unsqueeze(-1)
        when = torch.from_numpy(number[:, :most]).where(active, 0).reshape(*batch, most).to(device)
        tensors: list[Tensor] = [active.reshape(when.shape).to(device)]
        self.layout = Layout.of(joined[0])
        for each in zip(*(pack(found) for found in joined), strict=True):
            history = torch.stack(each, -2)  # (B..., T, K)
            tensors.append(history.gather(-2, when.unsqueeze(-1).expand(*when.shape, history.shape[-1])))
        return tuple(tensors)


def _room(count: int, size: int, most: int, old: tuple[np.ndarray, ...] = ()) -> tuple[np.ndarray, ...]:
    """Room for so many structures of every instance: entries, products, values, weights, and when they were found."""
    shapes = ((most, size), (most, most), (most,), (most,))
    state = (*(np.zeros((count, *shape)) for shape in shapes), np.zeros((count, most), np.int64))
    for new, kept in zip(state, old, strict=False):
        new[tuple(map(slice, kept.shape))] = kept
    return state


def _combine(arguments: tuple[object, ...], count: int) -> None:
    from directloss.layers.active_set_kernel import combine  # numba takes its time to import

    threads.split(lambda first, last: int(combine(*arguments, first, last)), count, least=_LEAST_INSTANCES)
