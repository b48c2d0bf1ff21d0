"""The axes of tensors: S samples, B batch (any number of axes), ``*E`` the structure's entries."""

from collections.abc import Sequence

import torch


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape broadcasts to exactly the other."""
    try:
        return bool(torch.broadcast_shapes(tuple(shape), tuple(to)) == torch.Size(to))
    except RuntimeError:
        return False
