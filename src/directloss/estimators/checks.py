"""What every relaxation asks of its input."""

import torch
from torch import Tensor

from directloss.structures import Subset


def check_scores(scores: Tensor) -> None:
    """Raise where scores are no floating-point tensor."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores: got {type(scores).__name__}, expected a torch.Tensor")
    if not scores.is_floating_point():
        raise TypeError(f"scores are {scores.dtype}, expected a floating-point dtype: call .float() on them")


def check_subset(scores: Tensor, k: int) -> None:
    """Raise where scores have no k of n entries to take in their last axis."""
    check_scores(scores)
    subset = Subset(k)
    subset.check_shape(scores.shape[len(subset.batch_shape(scores)) :])


def over_temperature(scores: Tensor, temperature: float, terms: int = 1) -> Tensor:
    """``scores / temperature``, raising where a sum of so many ``terms`` of it would not be finite."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}, expected a positive number")
    scaled = scores / temperature
    if not torch.isfinite(terms * scaled.detach()).all():
        raise ValueError(
            f"scores / temperature hold NaN or infinite entries in {scores.dtype}; give finite scores, "
            "a higher temperature or a wider dtype"
        )
    return scaled
