"""Maximisers inside ``torch.func`` too, which must see all that is solved for as tensors. Nothing is differentiated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from directloss.layout import Layout, pack
from directloss.losses.autograd import lead
from directloss.parts import Vertices
from directloss.structures.base import Structure
from directloss.transforms import inside_transform

Tensors = tuple[Tensor, ...]
Decision = tuple[Vertices, ...]  # of each part of the scores
Solve = Callable[[Structure, Tensors, tuple[torch.Size, ...]], Tensors]


def solved(
    structure: Structure,
    entries: tuple[torch.Size, ...],
    parts: Sequence[Tensor],
    cost: Tensor | None = None,
    steps: Sequence[float] = (0.0,),
) -> list[Decision]:
    """The maximisers of ``parts + step * cost`` for each step. ``parts`` may have further leading axes."""
    if not inside_transform():
        vertices = structure.maximize(tuple(parts), entries, cost, steps)
        return [tuple(v.select(index) for v in vertices) for index in range(len(steps))]
    layout: list[Layout] = []
    count = len(entries)

    def maximize(structure: Structure, tensors: Tensors, _: tuple[torch.Size, ...]) -> Tensors:
        vertices = structure.maximize(tensors[:count], entries, None if cost is None else tensors[count], steps)
        every = [v.select(index) for index in range(len(steps)) for v in vertices]
        layout[:] = [Layout.of(every)]
        return tuple(pack(every))

    given, own = (tuple(parts), entries) if cost is None else ((*parts, cost), (*entries, entries[0]))
    tensors = batched(maximize, structure, own, given)
    every = layout[0].unpack(tensors)
    return [every[first : first + count] for first in range(0, len(every), count)]


def batched(function: Solve, structure: Structure, entries: tuple[torch.Size, ...], parts: Sequence[Tensor]) -> Tensors:
    """``function(structure, parts, entries)``, whose results have the batch axes first; vmap's become batch axes."""
    parts = tuple(part.detach() for part in parts)
    if not inside_transform():
        with torch.no_grad():
            return function(structure, parts, entries)
    found: Tensors = _Batched.apply(_Task(function, structure, entries), *parts, *structure.tensors())
    return found


@dataclass(frozen=True)
class _Task:
    """In an object of its own, because torch.func would look for tensors in a tuple and make a torch.Size one."""

    function: Solve
    structure: Structure
    entries: tuple[torch.Size, ...]


class _Batched(torch.autograd.Function):
    @staticmethod
    def forward(task: _Task, *tensors: Tensor) -> Tensors:
        count = len(task.entries)
        data = tensors[count:]
        structure = task.structure.with_tensors(data) if data else task.structure  # a pool is no copy: it remembers
        return task.function(structure, tensors[:count], task.entries)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        raise AssertionError("nothing of this is differentiable")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], task: _Task, *tensors: Tensor) -> tuple[Tensors, int]:
        # A structure takes any number of batch axes, so vmap's is one more. What it does not map broadcasts.
        own = [*map(len, task.entries), *task.structure.tensor_dims()]
        batch = tensors[0].dim() - (in_dims[1] is not None) - own[0]
        moved = [lead(t, dim, batch + dims) for t, dim, dims in zip(tensors, in_dims[1:], own, strict=True)]
        if in_dims[1] is None:  # something else is mapped
            moved[0] = tensors[0].expand(info.batch_size, *tensors[0].shape)
        return _Batched.apply(task, *moved), 0
