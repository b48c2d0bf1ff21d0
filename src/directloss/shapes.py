"""The axes of tensors: S samples, B batch (any number of axes), ``*E`` the structure's entries."""

from collections.abc import Sequence


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape broadcasts to exactly the other."""
    aligned = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in aligned)
