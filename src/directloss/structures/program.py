"""Linear programmes, with integer and continuous variables."""

import math
import operator
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss.parts import Vertices
from directloss.structures import highs
from directloss.structures.arrays import place, repeating
from directloss.structures.base import MOST_STRUCTURES, Structure
from directloss.structures.workers import Workers

_REASONS = {
    highs.INFEASIBLE: "has no solution: its constraints and bounds contradict each other",
    highs.UNBOUNDED: "is unbounded: its score grows without limit; give lower and upper bounds",
    highs.ROUNDED_AWAY: "has a solution that breaks a constraint once its integer variables are rounded; scale its "
    "constraints so that their coefficients are of one size",
    highs.FAILED: "could not be solved by HiGHS; are its numbers of very different sizes?",
}


class Program(Structure):
    """A linear objective over linear constraints, with integer and continuous variables. ``*E`` is (n,).

    ``A_ub y <= b_ub``, ``A_eq y = b_eq``, ``lower <= y <= upper``. All of them may differ between instances: batch axes
    come first. Solved by HiGHS to a gap of 0; needs ``pip install 'directloss[highs]'``.

    Args:
        A_ub: (B..., m, n) coefficients of the inequalities.
        b_ub: (B..., m) their right-hand sides.
        A_eq: (B..., k, n) coefficients of the equalities.
        b_eq: (B..., k) their right-hand sides.
        lower: a number, or (B..., n); may be -inf.
        upper: a number, or (B..., n); may be inf.
        integer: True or False for all variables, or a boolean mask (n,).
        workers: so many processes that solve; 0 solves in this one. Programmes with equally many share them.

    Example:
        >>> import torch, directloss as dl
        >>> knapsack = dl.Program(A_ub=torch.tensor([[5.0, 4.0, 3.0]]), b_ub=torch.tensor([7.0]))
        >>> knapsack.solve(torch.tensor([6.0, 4.0, 3.0]))
        tensor([0., 1., 1.])
    """

    entry_dims = 1
    data: ClassVar = {"A_ub": 2, "b_ub": 1, "A_eq": 2, "b_eq": 1, "lower": 1, "upper": 1}

    def __init__(
        self,
        A_ub: Tensor | None = None,  # noqa: N803 (scipy's names)
        b_ub: Tensor | None = None,
        A_eq: Tensor | None = None,  # noqa: N803
        b_eq: Tensor | None = None,
        lower: float | Tensor = 0,
        upper: float | Tensor = 1,
        integer: bool | Tensor = True,
        workers: int = 0,
    ):
        highs.import_highspy()
        self.A_ub, self.b_ub = _rows("ub", A_ub, b_ub)
        self.A_eq, self.b_eq = _rows("eq", A_eq, b_eq)
        self.lower, self.upper = _numbers("lower", lower, 1), _numbers("upper", upper, 1)
        self.integer = integer
        if not isinstance(integer, bool) and not (
            isinstance(integer, Tensor) and integer.dtype == torch.bool and integer.dim() == 1
        ):
            raise TypeError(f"integer is {integer!r}, expected True, False or a boolean mask (n,)")
        self.workers = operator.index(workers)
        if self.workers < 0:
            raise ValueError(f"workers is {workers}, expected 0 (solve in this process) or more")
        self._validate_values()

    def _validate(self) -> None:
        for name in ("A_ub", "A_eq", "b_eq"):
            tensor = getattr(self, name)
            if tensor is not None and not torch.isfinite(tensor).all():
                raise ValueError(f"{name} has NaN or infinite numbers; all must be finite")
        for name, worst in (("b_ub", -math.inf), ("lower", math.inf), ("upper", -math.inf)):
            tensor = getattr(self, name)
            if tensor is not None and (tensor.isnan() | (tensor == worst)).any():
                raise ValueError(f"{name} has NaN or {worst} among its numbers, which no solution satisfies")
        lower, upper = torch.broadcast_tensors(self.lower, self.upper)
        if (lower > upper).any():
            *instance, variable = (lower > upper).nonzero()[0].tolist()
            raise ValueError(
                f"lower is {lower[(*instance, variable)]:g} and upper {upper[(*instance, variable)]:g} for variable "
                f"{variable} of instance {tuple(instance)}; a lower bound must not exceed its upper bound"
            )

    def _check_entries(self, entries: torch.Size) -> None:
        n = entries[0]
        for name in ("A_ub", "A_eq"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape[-1] != n:
                raise ValueError(f"scores have {n} entries, but {name} has {tensor.shape[-1]} columns; they must agree")
        for name in ("lower", "upper"):
            if getattr(self, name).shape[-1] not in (1, n):
                raise ValueError(
                    f"scores have {n} entries, but {name} has {getattr(self, name).shape[-1]}; give one for each, or a "
                    "number"
                )
        if isinstance(self.integer, Tensor) and len(self.integer) != n:
            raise ValueError(f"scores have {n} entries, but integer is a mask of {len(self.integer)}; they must agree")

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        (scores,) = parts
        batch, n = scores.shape[:-1], scores.shape[-1]
        own = scores.detach().cpu().reshape(-1, n)
        shared = (torch.tensor(steps, dtype=torch.float64, device="cpu"), self._mask(n))
        # Steps and mask are of the whole batch; all others have an axis of instances, along which they repeat.
        repeated = [torch.from_numpy(array) for array in (repeating(cost, batch, (n,)), *self._constraints(batch, n))]
        if self.workers:
            found = self._by_workers(own, shared, repeated)
        else:
            found = highs.solve_batch(own, repeated[0], *shared, *repeated[1:])
        failed = (found[..., -1] != highs.OPTIMAL).nonzero()
        if len(failed):
            step, instance = failed[0].tolist()
            raise ValueError(
                f"the programme of instance {place(instance, batch)} {_REASONS[int(found[step, instance, -1])]}"
            )
        y = found[..., :-1].reshape(len(steps), *scores.shape).to(scores).contiguous()
        return (Vertices.of_dense(y, 1),)

    def _by_workers(self, scores: Tensor, shared: tuple[Tensor, ...], repeated: list[Tensor]) -> Tensor:
        tasks, first = [], 0
        while first < len(scores):
            # Ever smaller tasks, because instances differ in how hard they are: all workers end at about one time.
            size = max(1, (len(scores) - first) // (3 * self.workers))
            rows = torch.arange(first, first + size, device="cpu")
            cost, *rest = (tensor if len(tensor) == 1 else tensor[rows % len(tensor)] for tensor in repeated)
            tasks.append((scores[rows], cost, *shared, *rest))
            first += size
        return torch.cat(_pool(self.workers, os.getpid()).map(tasks), 1)

    def _mask(self, n: int) -> Tensor:
        return torch.full((n,), self.integer, device="cpu") if isinstance(self.integer, bool) else self.integer.cpu()

    def _constraints(self, batch: torch.Size, n: int) -> list[np.ndarray]:
        """Matrix, lower and upper bounds of the rows, lower and upper bounds of the variables, each (period, ...)."""
        blocks = [
            (matrix, side if equal else torch.full_like(side, -math.inf), side)
            for matrix, side, equal in ((self.A_ub, self.b_ub, False), (self.A_eq, self.b_eq, True))
            if matrix is not None and side is not None
        ]
        rows = sum(matrix.shape[-2] for matrix, _, _ in blocks)
        if not blocks:
            none = torch.zeros(0, device="cpu")
            blocks = [(none.reshape(0, n), none, none)]
        joined = [_joined(tensors, axis) for tensors, axis in zip(zip(*blocks, strict=True), (-2, -1, -1), strict=True)]
        own = ((rows, n), (rows,), (rows,), (n,), (n,))
        found = (
            repeating(tensor, batch, axes) for tensor, axes in zip((*joined, self.lower, self.upper), own, strict=True)
        )
        return [array.astype(np.float64, copy=False) for array in found]

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        matrix, row_lower, row_upper, *_ = (array[0] for array in self._constraints(torch.Size(), len(scores)))
        every = np.stack(np.meshgrid(*self._box(len(scores)), indexing="ij"), -1).reshape(-1, len(scores))
        coefficients, power = highs.scaled(matrix)
        activity = every @ coefficients.T
        low, high = row_lower / power - highs.TOLERANCE, row_upper / power + highs.TOLERANCE
        every = every[((activity >= low) & (activity <= high)).all(1)]
        return (Vertices.of_dense(torch.from_numpy(every).to(scores), 1),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        largest = math.prod(len(values) for values in self._box(len(parts[0])))
        return largest if largest > MOST_STRUCTURES else super()._count(parts)  # else an upper bound

    def _box(self, n: int) -> list[np.ndarray]:
        """The whole numbers between the bounds of each variable."""
        if not self._mask(n).all():
            raise ValueError(f"{self!r} cannot be enumerated: it has continuous variables")
        lower, upper = (array[0] for array in self._constraints(torch.Size(), n)[3:])
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise ValueError(f"{self!r} cannot be enumerated: it has variables without finite bounds")
        return [np.arange(math.ceil(low), math.floor(high) + 1.0) for low, high in zip(lower, upper, strict=True)]

    def __repr__(self) -> str:
        given = [f"{name}=..." for name in ("A_ub", "A_eq") if getattr(self, name) is not None]
        integer = self.integer if isinstance(self.integer, bool) else "..."
        return f"Program({', '.join([*given, f'integer={integer}'])})"


@cache
def _pool(count: int, parent: int) -> Workers:
    """The processes that all programmes with so many workers share; a forked process must not use its parent's."""
    return Workers(highs.solve_batch, count)


def _numbers(name: str, value: Any, own: int) -> Tensor:
    """In float64, with at least ``own`` axes."""
    try:
        tensor = (value if isinstance(value, Tensor) else torch.tensor(value, device="cpu")).detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} is {type(value).__name__}, expected numbers (torch.as_tensor makes a tensor)"
        ) from None
    return tensor.reshape(*[1] * (own - tensor.dim()), *tensor.shape)


def _rows(name: str, matrix: Any, side: Any) -> tuple[Tensor | None, Tensor | None]:
    if matrix is None and side is None:
        return None, None
    if matrix is None or side is None:
        missing = "A" if matrix is None else "b"
        raise ValueError(f"A_{name} and b_{name} go together, but {missing}_{name} is missing")
    matrix, side = _numbers(f"A_{name}", matrix, 2), _numbers(f"b_{name}", side, 1)
    if side.shape[-1] != matrix.shape[-2]:
        raise ValueError(
            f"A_{name} has {matrix.shape[-2]} rows, but b_{name} has {side.shape[-1]} right-hand sides; they must agree"
        )
    return matrix, side


def _joined(tensors: tuple[Tensor, ...], axis: int) -> Tensor:
    """One below the other, with the batch axes of all."""
    batch = torch.broadcast_shapes(*(tensor.shape[:axis] for tensor in tensors))
    return torch.cat([tensor.expand(*batch, *tensor.shape[axis:]) for tensor in tensors], axis)
