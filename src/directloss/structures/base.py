"""What a structure is: a finite set Y with an exact maximiser of ``<scores, y>``."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor

from directloss.dtypes import wide_dtype
from directloss.parts import Scores, Vertices, as_parts, broadcasts, check_cost
from directloss.structures.certificate import certify
from directloss.structures.checks import LARGEST_SCORE, check_batch_axes, largest_magnitude, too_many
from directloss.structures.partition import log_partition
from directloss.transforms import inside_transform

MOST_STRUCTURES = 1_000_000
_SAFE = torch.finfo(torch.float32).max / 4


class Structure(ABC):
    """A set of structures over entries ``*E``; scores carry any number of batch axes before them.

    A subclass sets ``entry_dims`` (the length of ``*E``), names the tensors of an instance in ``data``, and implements
    ``_check_entries``, ``_enumerate`` and ``_maximize``, or ``_maximize_along`` where solving a family of scores
    together pays. Its attributes are never changed after it is made.
    """

    entry_dims: int
    # Tensors of an instance, by attribute, with the number of their last axes that are not batch axes.
    data: ClassVar[Mapping[str, int]] = {}
    # A maximiser that is not proven is checked wherever it is called more than once.
    proven: bool = False
    # Whether a maximiser that fails that check is refused, or only reported.
    exact: bool = True
    # Whether it takes no positive scores (paths with cycles), so that noise must be multiplicative.
    nonpositive: bool = False
    summable: bool = False  # whether it has a partition function

    @abstractmethod
    def _check_entries(self, entries: torch.Size) -> None:
        """Raise ValueError unless the structure exists over ``entries``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls._maximize is Structure._maximize and cls._maximize_along is Structure._maximize_along:
            raise TypeError(f"{cls.__name__} has no maximiser; define _maximize, or _maximize_along")

    def _maximize(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        """The best structure for checked, non-empty scores in float32 or float64, one ``Vertices`` for each part."""
        return tuple(found.select(0) for found in self._maximize_along(parts, parts[0], (0.0,)))

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        """Every structure of one instance, (N, ...)."""
        raise ValueError(f"{self!r} cannot be enumerated")

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        """How many structures there are; a subclass that knows need not make them to count them."""
        return len(self._enumerate(parts)[0].slots)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        """``log_partition`` of checked scores in float32 or float64, where it is ``summable``."""
        raise NotImplementedError

    def _validate(self) -> None:  # noqa: B027
        """Raise ValueError if the values of the data leave an instance without a structure."""

    def _part_entries(self, parts: tuple[Tensor, ...]) -> tuple[torch.Size, ...]:
        """The entries ``*E`` of each part; raise ValueError unless the parts fit together."""
        if len(parts) != 1:
            raise ValueError(f"scores have {len(parts)} parts, but {type(self).__name__} takes one tensor")
        entries = self._last_axes(parts[0])
        self._check_entries(entries)
        return (entries,)

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        """The best structures for ``scores + step * cost``, (T, ...): here all in one call, on a copy unless proven."""
        first, *factors = parts
        taken = [torch.add(first, cost, alpha=step) if step else first for step in steps]
        stacked = taken[0].unsqueeze(0) if self.proven and len(taken) == 1 else torch.stack(taken)
        return self._maximize((stacked, *factors))

    @overload
    def solve(self, scores: Scores, parts: Literal[False] = ...) -> Tensor: ...

    @overload
    def solve(self, scores: Scores, parts: Literal[True]) -> tuple[Tensor, ...]: ...

    def solve(self, scores: Scores, parts: bool = False) -> Tensor | tuple[Tensor, ...]:
        """The structure that maximises ``<scores, y>``, shaped like the scores (..., *E). Never differentiates.

        Of scores in parts it is the first part of the structure; with ``parts=True`` all of them.
        """
        given = self.expanded(as_parts(scores))
        vertices = self.vertices_along(given, None, (0.0,))
        if not parts:  # a factor's part may be much larger than the first
            return vertices[0].select(0).dense(given[0].dtype)
        return tuple(v.select(0).dense(part.dtype) for v, part in zip(vertices, given, strict=True))

    def solve_along(self, scores: Scores, cost: Tensor, steps: Sequence[float]) -> Tensor:
        """The maximisers of ``scores + t * cost`` for every t in ``steps``: (len(steps), ..., *E).

        ``cost`` broadcasts to the first part of the scores. Each solve may start from the one before.
        """
        given = self.expanded(as_parts(scores))
        (cost,) = as_parts(cost, "cost")
        return self.vertices_along(given, cost, steps)[0].dense(given[0].dtype)

    def vertices_along(
        self, parts: tuple[Tensor, ...], cost: Tensor | None, steps: Sequence[float]
    ) -> tuple[Vertices, ...]:
        """``solve_along`` in the compact form that rules work with: ``Vertices`` (T, ...) for each part."""
        entries, batch = self.fit(parts)
        if not steps or not all(map(math.isfinite, steps)):
            raise ValueError(f"steps are {steps!r}; expected one finite number or more")
        if cost is not None:
            check_cost(cost, parts[0])
        return self.for_batch(len(batch)).maximize(parts, entries, cost, steps)

    def fit(self, parts: tuple[Tensor, ...]) -> tuple[tuple[torch.Size, ...], torch.Size]:
        """The entries of each part, and the batch axes; raise ValueError unless scores and data fit together."""
        entries = self._part_entries(parts)
        return entries, self._batch(parts, entries)

    def maximize(
        self,
        parts: tuple[Tensor, ...],
        entries: tuple[torch.Size, ...],
        cost: Tensor | None,
        steps: Sequence[float],
    ) -> tuple[Vertices, ...]:
        """``vertices_along`` for shapes that are checked.

        Every solve comes through here: this is where the values of scores and costs are checked, once.
        """
        parts = tuple([part.detach() if part.requires_grad else part for part in parts])
        first, reach = parts[0], max([largest_magnitude(part, "scores") for part in parts])
        dtype = wide_dtype(first.dtype)
        if cost is None:
            cost = first
        else:
            cost = cost.detach() if cost.requires_grad else cost
            reach += max(map(abs, steps)) * largest_magnitude(cost, "cost")
            if cost.dtype != dtype:
                dtype = torch.promote_types(dtype, cost.dtype)
        if reach > _SAFE:  # in float32 the largest sums would overflow
            dtype = torch.float64
            if reach > LARGEST_SCORE:
                raise ValueError(f"scores + step * cost exceed {LARGEST_SCORE:g}, up to {reach:g}; scale them down")
        if not first.numel():
            batch = first.shape[: first.dim() - self.entry_dims]
            return tuple(Vertices.empty((len(steps), *batch), own, first.device) for own in entries)
        if cost.dtype != dtype or [part for part in parts if part.dtype != dtype]:
            parts, cost = tuple(part.to(dtype) for part in parts), cost.to(dtype)
        if self.proven:
            return self._maximize_along(parts, cost, steps)
        with torch.no_grad():  # it may be a network
            vertices = self._maximize_along(parts, cost, steps)
        if len(steps) > 1:
            certify(self, parts, cost, steps, vertices)
        return vertices

    @overload
    def enumerate(self, scores: Scores, parts: Literal[False] = ...) -> Tensor: ...

    @overload
    def enumerate(self, scores: Scores, parts: Literal[True]) -> tuple[Tensor, ...]: ...

    def enumerate(self, scores: Scores, parts: bool = False) -> Tensor | tuple[Tensor, ...]:
        """Every structure of one small instance, scores (*E): (N, *E). With ``parts=True``, all parts of each."""
        given = as_parts(scores)
        vertices = self.enumerated(given)
        if not parts:
            return vertices[0].dense(given[0].dtype)
        return tuple(v.dense(part.dtype) for v, part in zip(vertices, given, strict=True))

    def enumerated(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        """``enumerate`` in the compact form: ``Vertices`` (N, ...) for each part."""
        given = self._one_instance(parts)
        self.check_count(given)
        return self._enumerate(given)

    def count(self, scores: Scores) -> int:
        """How many structures there are for one instance, scores (*E)."""
        return self._count(self._one_instance(scores))

    def log_partition(self, scores: Scores) -> Tensor:
        """``log sum_y exp(<scores, y>)``, (B...). Its gradient, in every part, is the marginals: the mean structure."""
        return log_partition(self, scores)

    def complete(self, target: Tensor, scores: Scores) -> tuple[Vertices, ...]:
        """The structures whose first part is ``target`` (..., *E), with all parts that the scores have."""
        parts = as_parts(scores)
        entries = self._part_entries(parts)
        shape = (*self._batch(parts, entries), *entries[0])
        if not isinstance(target, Tensor) or not broadcasts(target.shape, shape):
            got = f"shape {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
            raise ValueError(f"target: got {got}, expected a structure shaped like the scores {shape}")
        if target.requires_grad or target.dtype != parts[0].dtype or target.device != parts[0].device:
            target = target.detach().to(parts[0])
        return self._complete(target if target.shape == shape else target.expand(shape), entries)

    def _complete(self, target: Tensor, entries: tuple[torch.Size, ...]) -> tuple[Vertices, ...]:
        return (Vertices.of_dense(target, self.entry_dims),)

    def batch_shape(self, scores: Scores) -> torch.Size:
        """The axes of scores before the entries."""
        return self.fit(as_parts(scores))[1]

    def expanded(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The parts, the first with all batch axes that any of them has."""
        if len(parts) == 1:
            return parts
        entries, batch = self.fit(parts)
        return parts[0].expand(*batch, *entries[0]), *parts[1:]

    def for_batch(self, batch_dims: int) -> "Structure":
        """This structure for scores with so many batch axes, before samples and steps come to lead them."""
        return self

    def tensors(self) -> tuple[Tensor, ...]:
        """The data of the instances, for autograd and vmap to see."""
        return tuple(tensor for name in self.data if (tensor := getattr(self, name)) is not None)

    def tensor_dims(self) -> tuple[int, ...]:
        """How many of the last axes of each of ``tensors()`` are not batch axes."""
        return tuple(own for name, own in self.data.items() if getattr(self, name) is not None)

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Structure":
        """This structure with other data, in the order of ``tensors()``."""
        rest, other = iter(tensors), copy.copy(self)
        for name in self.data:
            if getattr(self, name) is not None:
                setattr(other, name, next(rest))
        other._validate_values()
        return other

    def _validate_values(self) -> None:
        """Check the data's values where they can be read: inside a transform that is later, when they are solved."""
        if not inside_transform() and all(tensor.device.type != "meta" for tensor in self.tensors()):
            self._validate()

    def check_count(self, scores: Scores, most: int = MOST_STRUCTURES) -> None:
        """Raise ValueError if there are more than ``most`` structures for one instance."""
        if (count := self.count(scores)) > most:
            raise ValueError(f"{self!r} over {tuple(as_parts(scores)[0].shape)} has {too_many(count, most)}")

    def _one_instance(self, scores: Scores) -> tuple[Tensor, ...]:
        parts = as_parts(scores)
        batch = self.fit(parts)[1]
        if batch:
            raise ValueError(
                f"scores have shape {tuple(parts[0].shape)}: {len(batch)} axes before the entries of {self!r}; "
                "give one instance, e.g. scores[0]"
            )
        return parts

    def _last_axes(self, scores: Tensor) -> torch.Size:
        if scores.dim() < self.entry_dims:
            raise ValueError(
                f"scores have shape {tuple(scores.shape)}, but {type(self).__name__} needs at least "
                f"{self.entry_dims} axes, its entries last"
            )
        return scores.shape[scores.dim() - self.entry_dims :]

    def _batch(self, parts: tuple[Tensor, ...], entries: tuple[torch.Size, ...]) -> torch.Size:
        """The batch axes that the parts have together; the data must broadcast to them."""
        batch = parts[0].shape[: parts[0].dim() - self.entry_dims]
        for part, own in zip(parts[1:], entries[1:], strict=True):
            axes = part.shape[: max(0, part.dim() - len(own))]
            try:
                batch = torch.broadcast_shapes(batch, axes)
            except RuntimeError:
                raise ValueError(
                    f"a part of the scores has shape {tuple(part.shape)}, and so batch axes {tuple(axes)} before its "
                    f"entries {tuple(own)}; they do not broadcast with {tuple(batch)}"
                ) from None
        self._check_data(batch)
        return batch

    def _check_data(self, batch: torch.Size) -> None:
        for name, own in self.data.items():
            check_batch_axes(name, getattr(self, name), own, batch)

    def __repr__(self) -> str:
        given = [f"{name}=..." for name in self.data if getattr(self, name) is not None]
        return f"{type(self).__name__}({', '.join(given)})"


def check_structure_type(structure: Any) -> Structure:
    """``structure`` itself. Raise TypeError unless it is one."""
    if isinstance(structure, Structure):
        return structure
    if isinstance(structure, type) and issubclass(structure, Structure):
        raise TypeError(f"structure is the class {structure.__name__}; write dl.{structure.__name__}(...)")
    hint = "; dl.custom(function) makes one of a maximiser" if callable(structure) else ""
    raise TypeError(f"structure is {type(structure).__name__}, expected a structure such as dl.Choice(){hint}")
