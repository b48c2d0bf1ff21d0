"""Any maximiser of the user's."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from directloss.parts import Vertices, broadcasts
from directloss.structures.base import Structure
from directloss.structures.checks import magnitude
from directloss.structures.workers import Workers


class Custom(Structure):
    """What ``dl.custom`` makes."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        entry_dims: int,
        batched: bool,
        structures: Tensor | Callable[..., Tensor] | None,
        minimize: bool,
        exact: bool,
        workers: Workers | None,
    ):
        self.function, self.entry_dims, self.batched, self.structures = function, entry_dims, batched, structures
        self.minimize, self.exact, self.workers = minimize, exact, workers
        self.given_data: tuple[Tensor, ...] = ()
        self.own_dims: tuple[int, ...] | None = None  # of each, how many of its last axes are not batch axes

    def given(self, *tensors: Tensor) -> "Custom":
        """The same structure with data of its instances, which the function gets after the scores.

        Each tensor starts with the batch axes of the scores (size 1 where it is shared) and is expanded to the batch
        that the function is called with, samples and steps included.

        Example:
            >>> import torch, directloss as dl
            >>> def positive(scores, allowed):
            ...     return ((scores > 0) & allowed).float()
            >>> allowed = torch.tensor([[True, True], [False, True]])
            >>> dl.custom(positive).given(allowed).solve(torch.tensor([[1.0, 3.0], [1.0, 3.0]]))
            tensor([[1., 1.],
                    [0., 1.]])
        """
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"given: got {type(tensor).__name__}, expected tensors (torch.as_tensor makes one)")
        other = copy.copy(self)
        other.given_data, other.own_dims = tensors, None
        return other

    def for_batch(self, batch_dims: int) -> "Custom":
        if self.own_dims is not None or not self.given_data:
            return self
        for tensor in self.given_data:
            if tensor.dim() < batch_dims:
                raise ValueError(
                    f"given: a tensor of shape {tuple(tensor.shape)} must start with the {batch_dims} batch axes of "
                    "the scores (size 1 where it is shared)"
                )
        other = copy.copy(self)
        other.own_dims = tuple(tensor.dim() - batch_dims for tensor in self.given_data)
        return other

    def tensors(self) -> tuple[Tensor, ...]:
        return self.given_data

    def tensor_dims(self) -> tuple[int, ...]:
        assert self.own_dims is not None or not self.given_data
        return self.own_dims or ()

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Custom":
        other = copy.copy(self)
        other.given_data = tuple(tensors)
        return other

    def _check_entries(self, entries: torch.Size) -> None:
        pass  # the user's function is the judge

    def _check_data(self, batch: torch.Size) -> None:
        for tensor, own in zip(self.given_data, self.for_batch(len(batch)).tensor_dims(), strict=True):
            if not broadcasts(tensor.shape[: tensor.dim() - own], batch):
                raise ValueError(
                    f"given: a tensor of shape {tuple(tensor.shape)} does not start with the scores' batch axes "
                    f"{tuple(batch)}; use size 1 where it is shared"
                )

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        if self.structures is None:
            raise ValueError("this custom structure cannot be enumerated: pass structures= to dl.custom")
        (scores,) = parts
        every = self.structures
        if not isinstance(every, Tensor):
            every = every(scores.shape, *self.given_data)
        if every.shape[1:] != scores.shape:
            raise ValueError(
                f"structures have shape {tuple(every.shape)}, expected (N, *{tuple(scores.shape)}), all structures "
                "over the entries of the scores"
            )
        return (Vertices.of_dense(every.to(scores), self.entry_dims),)

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        batch = scores.shape[: scores.dim() - self.entry_dims]
        signed = -scores if self.minimize else scores
        data = [
            tensor.expand(*batch, *tensor.shape[tensor.dim() - own :])
            for tensor, own in zip(self.given_data, self.tensor_dims(), strict=True)
        ]
        if self.batched:
            y = self._checked(self.function(signed, *data), scores.shape)
        else:
            flat = signed.reshape(-1, *scores.shape[len(batch) :])
            rows = [tensor.reshape(len(flat), *tensor.shape[len(batch) :]) for tensor in data]
            instances = [(one, *(row[index] for row in rows)) for index, one in enumerate(flat)]
            if self.workers is None:
                found = [self.function(*instance) for instance in instances]
            else:
                found = self.workers.map(instances)
            y = torch.stack([self._checked(one, flat.shape[1:]) for one in found]).reshape(scores.shape)
        y = y.detach().to(scores)
        if not math.isfinite(magnitude(y)):
            bad = int((~torch.isfinite(y)).sum())
            raise ValueError(
                f"{self._name} returned {bad} NaN or infinite entries of {y.numel()}; a structure is a finite tensor"
            )
        return (Vertices.of_dense(y, self.entry_dims),)

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "the custom maximiser")

    def _checked(self, y: Any, shape: torch.Size) -> Tensor:
        name = self._name
        if not isinstance(y, Tensor):
            raise TypeError(f"{name} returned {type(y).__name__}, expected a torch.Tensor shaped like its scores")
        if y.shape != shape:
            raise ValueError(
                f"{name} returned shape {tuple(y.shape)} for scores of shape {tuple(shape)}; "
                "it must return one structure for each instance, shaped like the scores "
                "(pass batched=False if it takes one instance at a time)"
            )
        return y

    def __repr__(self) -> str:
        return f"custom({getattr(self.function, '__name__', self.function)!s})"


def custom(
    function: Callable[..., Tensor],
    entry_dims: int = 1,
    batched: bool = True,
    structures: Tensor | Callable[..., Tensor] | None = None,
    minimize: bool = False,
    exact: bool = True,
    workers: int = 0,
) -> Custom:
    """Make a structure of any function that maximises ``<scores, y>``.

    Args:
        function: takes scores, and what ``.given`` holds, and returns the best structure, shaped like the scores: 0/1,
            whole or real numbers.
        entry_dims: how many of the last axes belong to one structure.
        batched: False calls ``function`` with one instance at a time. True calls it once for all instances, samples and
            steps of a call.
        structures: optional, for ``enumerate``: all structures (N, *E), or a function that returns them, called with
            the entries ``*E`` and what ``.given`` holds.
        minimize: the function minimises, and gets the scores with their signs turned.
        exact: False for a heuristic: an answer that another of its answers beats is reported, not refused.
        workers: so many processes that solve one instance each (``batched=False``); they live as long as the structure
            and what ``.given`` makes of it.

    Example:
        >>> import torch, directloss as dl
        >>> largest = dl.custom(lambda s: (s == s.max(-1, keepdim=True).values).float())
        >>> largest.solve(torch.tensor([[1.0, 3.0, 2.0]]))
        tensor([[0., 1., 0.]])
    """
    if not callable(function):
        raise TypeError(f"function is {type(function).__name__}, expected a callable")
    if entry_dims < 1:
        raise ValueError(f"entry_dims is {entry_dims}, expected at least 1")
    if workers < 0:
        raise ValueError(f"workers is {workers}, expected 0 (solve in this process) or more")
    if workers and batched:
        raise ValueError("workers solve one instance at a time: pass batched=False with them")
    return Custom(
        function, entry_dims, batched, structures, minimize, exact, Workers(function, workers) if workers else None
    )
