"""Vertices as the tensors that they are made of, which autograd and ``torch.func`` can see."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from directloss.parts import Vertices


class Layout(NamedTuple):
    """Which tensors a tuple of ``Vertices`` is made of, so that it can pass through autograd as tensors."""

    parts: tuple[tuple[torch.Size, bool, bool], ...]

    @classmethod
    def of(cls, vertices: Sequence[Vertices]) -> "Layout":
        return cls(tuple((v.entries, v.positions is not None, v.values is not None) for v in vertices))

    def unpack(self, tensors: Iterable[Tensor]) -> tuple[Vertices, ...]:
        """The vertices of ``pack``'s tensors."""
        rest = iter(tensors)
        return tuple(
            Vertices(entries, next(rest) if positions else None, next(rest) if values else None)
            for entries, positions, values in self.parts
        )


def pack(vertices: Sequence[Vertices]) -> list[Tensor]:
    """The tensors of vertices, in the order of their ``Layout``."""
    return [tensor for v in vertices for tensor in (v.positions, v.values) if tensor is not None]
