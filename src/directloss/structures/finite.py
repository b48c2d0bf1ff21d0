"""Any explicit list of structures."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures.base import Structure

# Numbers (instances x the larger of N and E) that are held at a time.
_CHUNK = 1_000_000


class Finite(Structure):
    """One of N given vertices, found by one matrix product. ``*E`` are the axes of a vertex.

    Args:
        vertices: (N, *E), or (B..., N, *E) with a list for each instance; any finite numbers. Of vertices that are tied
            up to rounding the first is taken.
        entry_dims: how many of the last axes are ``*E``; the axis before them is N, and axes before that are batch.

    Example:
        >>> import torch, directloss as dl
        >>> vertices = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
        >>> dl.Finite(vertices).solve(torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [-1.0, -1.0, -1.0]]))
        tensor([[0., 3., 1.],
                [2., 1., 0.],
                [0., 0., 0.]])
    """

    # Kept flat, (B..., N, E): what one matrix product takes.
    data: ClassVar[Mapping[str, int]] = {"vertices": 2}
    proven = True
    summable = True

    def __init__(self, vertices: Tensor, entry_dims: int = 1):
        if not isinstance(vertices, Tensor):
            raise TypeError(f"vertices is {type(vertices).__name__}, expected a torch.Tensor (torch.stack makes one)")
        if entry_dims < 1:
            raise ValueError(f"entry_dims is {entry_dims}, expected at least 1")
        if vertices.dim() <= entry_dims:
            raise ValueError(
                f"vertices have shape {tuple(vertices.shape)}, expected (..., N, *E) with {entry_dims} axes of entries"
            )
        if not vertices.shape[-entry_dims - 1]:
            raise ValueError(f"vertices have shape {tuple(vertices.shape)}: N = 0 leaves nothing to choose")
        self.entry_dims, self.entries = entry_dims, vertices.shape[vertices.dim() - entry_dims :]
        self.vertices = vertices.detach().to(torch.float64).flatten(vertices.dim() - entry_dims)
        self._validate_values()

    def _validate(self) -> None:
        wrong = ~torch.isfinite(self.vertices).all(-1)
        if wrong.any():
            raise ValueError(f"vertex {tuple(wrong.nonzero()[0].tolist())} is not finite")

    def _check_entries(self, entries: torch.Size) -> None:
        if entries != self.entries:
            raise ValueError(f"scores have entries {tuple(entries)}, but the vertices {tuple(self.entries)}")

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        # <scores + t cost, y> is linear in t: two products serve all steps.
        (scores,) = parts
        batch = scores.shape[: scores.dim() - self.entry_dims]
        flat, price = (tensor.expand_as(scores).reshape(*batch, -1) for tensor in (scores, cost))
        vertices = self.vertices.to(scores.device)
        if vertices.dim() == 2:  # any part of the batch can be solved alone
            ours, theirs = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (flat, price))
            found = ours.new_empty(len(steps), *ours.shape)
            answer_along(vertices, ours, theirs, steps, torch.arange(len(ours), device=ours.device), found)
            found = found.reshape(len(steps), *flat.shape)
        else:
            rows = vertices.expand(*batch, *vertices.shape[-2:])
            best = best_along(vertices, flat, price, steps)[..., None, None]
            found = torch.stack([rows.take_along_dim(one, -2).squeeze(-2) for one in best])
        return (Vertices(self.entries, None, found.to(scores.dtype)),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        flat = parts[0].double().flatten(parts[0].dim() - self.entry_dims)
        return _product(flat, self.vertices.to(flat.device)).logsumexp(-1)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        return (Vertices(self.entries, None, self.vertices.to(parts[0])),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        return self.vertices.shape[-2]

    def __repr__(self) -> str:
        return f"Finite({self.vertices.shape[-2]} vertices over {tuple(self.entries)})"


def answer_along(
    vertices: Tensor, scores: Tensor, cost: Tensor, steps: Sequence[float], which: Tensor, found: Tensor
) -> None:
    """Write the best of the vertices (N, E) for the instances ``which`` of scores (I, E) to ``found`` (T, I, E)."""
    own = vertices.to(found.dtype)
    for some in which.split(max(1, _CHUNK // max(vertices.shape))):
        found[:, some] = own[best_along(vertices, scores[some], cost[some], steps)]


def best_along(vertices: Tensor, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Tensor:
    """Which vertex (..., N, E) is best for ``scores + t * cost`` (..., E) at each step t: (T, ...).

    A matrix product adds up in an order that depends on the batch. So that ties do not, the first vertex is taken that
    no other beats by more than such rounding.
    """
    plain = _product(scores.double(), vertices)
    along = _product(cost.double(), vertices) if any(steps) else plain
    largest = vertices.abs().amax(-2)
    rounding = vertices.shape[-1] * torch.finfo(torch.float64).eps
    best = []
    for step in steps:
        values = plain + step * along if step else plain
        size = ((scores.abs() + abs(step) * cost.abs()) * largest).sum(-1, keepdim=True)
        tied = values >= values.amax(-1, keepdim=True) - rounding * size
        best.append(tied.to(torch.uint8).argmax(-1))
    return torch.stack(best)


def _product(scores: Tensor, vertices: Tensor) -> Tensor:
    """``<scores, vertex>``, (..., N), without a copy of the vertices for every sample."""
    return torch.einsum("...e,...ne->...n", scores, vertices)
