"""The best of the solutions seen so far."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from directloss.parts import Vertices
from directloss.structures.base import Structure, check_structure_type
from directloss.structures.finite import answer_along
from directloss.transforms import inside_backward


@dataclass
class _Memory:
    """What a pool knows, shared by the copies of it that one call makes."""

    random: Tensor  # the state of a generator
    known: dict[bytes, None]  # solutions in float64, the last found last
    entries: torch.Size | None = None


class Pool(Structure, nn.Module):
    """The best of the solutions seen so far, for solvers that cost seconds. ``*E`` as inside.

    A call solves afresh for a random share of its instances (samples included), keeps what it finds, and answers the
    others by the best solution that it knows, which is one matrix product. The first call solves for all. One set of
    solutions serves all steps of a call, so that the difference of two answers never comes from two sets.

    It is a Module, so that a criterion that holds it checkpoints it: its ``state_dict`` are the solutions and the state
    of its random numbers. In ``eval()`` it solves and draws in the same way but keeps nothing.

    Args:
        structure: what is solved, scored by one tensor. All instances must have the same feasible set: masks and other
            data with batch axes are refused.
        solve_share: the probability that an instance is solved afresh, from 0 (only the first call) to 1 (all).
        size: the most solutions that are kept; those that have not been found for longest are dropped.
        seed: of its random numbers.

    Example:
        >>> import torch, directloss as dl
        >>> pool = dl.Pool(dl.Matching(), solve_share=0.1)
        >>> y = pool.solve(torch.randn(100, 3, 3))
        >>> pool.solutions.shape
        torch.Size([6, 3, 3])
    """

    exact = False

    def __init__(self, structure: Structure, solve_share: float = 1.0, size: int = 1000, seed: int = 0):
        nn.Module.__init__(self)
        check_structure_type(structure)
        if not 0 <= solve_share <= 1:
            raise ValueError(f"solve_share is {solve_share}, expected a share from 0 to 1")
        if size < 1:
            raise ValueError(f"size is {size}, expected at least 1")
        own = [(getattr(structure, name), dims) for name, dims in structure.data.items()]
        _refuse_batches(structure, [(tensor, dims) for tensor, dims in own if tensor is not None])
        self.structure, self.solve_share, self.size = structure, solve_share, size
        self.entry_dims, self.nonpositive = structure.entry_dims, structure.nonpositive
        self._memory = _Memory(torch.Generator().manual_seed(seed).get_state(), {})

    @property
    def solutions(self) -> Tensor:
        """What it knows, (N, *E), in float64."""
        entries = self._memory.entries
        if entries is None:
            return torch.empty([0] * (1 + self.entry_dims), dtype=torch.float64, device="cpu")
        return _matrix(self._memory.known, entries).reshape(-1, *entries)

    def add(self, solutions: Tensor) -> None:
        """Let it know solutions (..., *E), such as the targets of a data set."""
        entries = solutions.shape[solutions.dim() - self.entry_dims :]
        self._check_entries(entries)
        self._learn(solutions, entries)

    def get_extra_state(self) -> dict[str, Any]:
        """The solutions and the random numbers, for ``state_dict``."""
        return {"solutions": self.solutions, "random": self._memory.random}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``."""
        solutions: Tensor = state["solutions"]
        self._memory = _Memory(state["random"].cpu(), {})
        if len(solutions):
            self._memory.entries = solutions.shape[1:]
            self._memory.known = dict.fromkeys(_rows(solutions, solutions.shape[1:]))

    def _check_entries(self, entries: torch.Size) -> None:
        self.structure._check_entries(entries)
        own = self._memory.entries
        if own is not None and own != entries:
            raise ValueError(
                f"this pool knows solutions over {tuple(own)}, but the scores have entries {tuple(entries)}; "
                "make a pool for each size"
            )

    def for_batch(self, batch_dims: int) -> "Pool":
        inside = self.structure.for_batch(batch_dims)
        if inside is self.structure:
            return self
        other = copy.copy(self)
        other.structure = inside
        return other

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        (scores,) = parts
        batch, entries = scores.shape[: scores.dim() - self.entry_dims], scores.shape[scores.dim() - self.entry_dims :]
        flat, price = (tensor.expand_as(scores).reshape(-1, *entries) for tensor in (scores, cost))
        fresh = self._draw(len(flat)).to(scores.device)
        found = flat.new_empty(len(steps), len(flat), entries.numel())
        known = self._memory.known
        if len(fresh):
            inside = self._inside(len(batch))
            (answers,) = inside.vertices_along((flat[fresh],), price[fresh], steps)
            solutions = answers.dense(torch.float64).flatten(2)
            known = self._learn(solutions, entries)
            found[:, fresh] = solutions.to(found.dtype)
        others = torch.ones(len(flat), dtype=torch.bool, device=scores.device)
        if self.structure.exact:  # nothing that is known can beat a fresh answer
            others[fresh] = False
        if others.any():
            vertices = _matrix(known, entries).to(scores.device)
            answer_along(vertices, flat.flatten(1), price.flatten(1), steps, others.nonzero().flatten(), found)
        return (Vertices(entries, None, found.reshape(len(steps), *batch, -1)),)

    def _draw(self, count: int) -> Tensor:
        """Which instances are solved afresh."""
        if not self._memory.known or self.solve_share == 1:
            return torch.arange(count, device="cpu")
        generator = torch.Generator()
        generator.set_state(self._memory.random)
        drawn = torch.rand(count, generator=generator, device="cpu") < self.solve_share
        if self._keeps:
            self._memory.random = generator.get_state()
        return drawn.nonzero().flatten()

    @property
    def _keeps(self) -> bool:
        """A forward pass that is recomputed in a backward pass must not be learned from twice."""
        return self.training and not inside_backward()

    def _inside(self, batch_dims: int) -> Structure:
        """The structure for instances in one row, whatever batch axes of size 1 its data have."""
        inside = self.structure.for_batch(batch_dims)
        own = list(zip(inside.tensors(), inside.tensor_dims(), strict=True))
        _refuse_batches(inside, own)
        return inside.with_tensors([tensor.reshape(1, *tensor.shape[tensor.dim() - dims :]) for tensor, dims in own])

    def _learn(self, solutions: Tensor, entries: torch.Size) -> dict[bytes, None]:
        """Keep solutions (..., *E), or flat; return all that a call may answer with, also beyond ``size``."""
        found = dict.fromkeys(_rows(solutions, entries))
        every = {key: None for key in self._memory.known if key not in found} | found
        if self._keeps:
            self._memory.entries = entries
            self._memory.known = dict.fromkeys(list(every)[-self.size :])
        return every

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        return self.structure._enumerate(parts)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        return self.structure._count(parts)

    def __repr__(self) -> str:
        return f"Pool({self.structure!r}, solve_share={self.solve_share:g}, size={self.size})"


def _rows(solutions: Tensor, entries: torch.Size) -> list[bytes]:
    """Solutions that can be compared, as float64 without a negative zero."""
    rows = solutions.detach().cpu().double().reshape(-1, entries.numel()) + 0.0
    return [row.tobytes() for row in rows.numpy()]


def _matrix(known: Iterable[bytes], entries: torch.Size) -> Tensor:
    """Solutions, flat, (N, E)."""
    return torch.from_numpy(np.frombuffer(b"".join(known)).copy()).reshape(-1, entries.numel())


def _refuse_batches(structure: Structure, data: Sequence[tuple[Tensor, int]]) -> None:
    """Raise ValueError if a tensor differs between instances; ``data`` are tensors and how many axes are their own."""
    for tensor, own in data:
        if tensor.shape[: tensor.dim() - own].numel() > 1:
            raise ValueError(
                f"{structure!r} has data of shape {tuple(tensor.shape)}, with batch axes: a solution of one instance "
                "may be none of another; a pool needs one feasible set for all"
            )
