"""What a loss returns: one value for each instance, or their mean or sum."""

from typing import Literal

from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless it is a reduction."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")


def reduce(values: Tensor, reduction: Reduction) -> Tensor:
    """``values`` (B...), or their mean or sum."""
    check_reduction(reduction)
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()
