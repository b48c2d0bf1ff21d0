"""What structures ask of scores and masks."""

import math
from typing import Any

import torch
from torch import Tensor

from directloss.later import later
from directloss.parts import broadcasts, on_cpu

_kernels = later("directloss.structures.kernels.magnitude")
# A kernel answers sooner for so few numbers; torch reads many with all its threads.
_SMALL, _READ = 1 << 14, (torch.float32, torch.float64)

# Sums along augmenting paths must not overflow float64.
LARGEST_SCORE = 1e150


def magnitude(tensor: Tensor) -> float:
    """The largest magnitude, 0 of nothing; not finite if an entry is not."""
    size = tensor.numel()
    if not size:
        return 0.0
    if size <= _SMALL and tensor.dtype in _READ and on_cpu(tensor) and tensor.is_contiguous():
        return float(_kernels().magnitude(tensor.numpy().reshape(size)))
    # Both are NaN if an entry is. A norm would do the same, but ten times slower.
    low, high = torch.aminmax(tensor)
    return max(-float(low), float(high))


def largest_magnitude(tensor: Tensor, name: str) -> float:
    """The largest magnitude; raise ValueError unless all entries are finite."""
    largest = magnitude(tensor)
    if not math.isfinite(largest):
        bad = int((~torch.isfinite(tensor)).sum())
        raise ValueError(
            f"{name} hold {bad} NaN or infinite entries of {tensor.numel()}; every entry must be finite "
            "(a forbidden entry is a mask of the structure, not an infinite score)"
        )
    if largest > LARGEST_SCORE:
        raise ValueError(f"{name} reach {largest:g}, beyond {LARGEST_SCORE:g}; scale them down")
    return largest


def check_mask(name: str, mask: Any, entry_dims: int, meaning: str) -> None:
    """Raise TypeError or ValueError unless it is a boolean tensor with the entries' axes."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{name} is {got}, expected a boolean tensor, True where {meaning}")
    if mask.dim() < entry_dims:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, expected at least {entry_dims} axes, entries last")


def check_mask_entries(name: str, mask: Tensor | None, entries: torch.Size) -> None:
    """Raise ValueError unless a mask has the scores' entries."""
    if mask is not None and mask.shape[-len(entries) :] != entries:
        raise ValueError(
            f"{name} is a mask of {tuple(mask.shape[-len(entries) :])} entries, but the scores have {tuple(entries)}; "
            "they must agree"
        )


def check_batch_axes(name: str, data: Tensor | None, own: int, batch: torch.Size) -> None:
    """Raise ValueError unless the axes of an instance's data before its last ``own`` broadcast to the batch."""
    if data is not None and not broadcasts(data.shape[: data.dim() - own], batch):
        raise ValueError(
            f"{name} has batch axes {tuple(data.shape[: data.dim() - own])}, which do not broadcast to the scores' "
            f"{tuple(batch)}"
        )


def too_many(count: int, most: int) -> str:
    """How an error says that there are more structures than can be enumerated."""
    many = f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"
    return f"{many} structures, more than the {most:,} that are enumerated; take a smaller instance"
