"""What every relaxation asks of its input."""

from typing import Any, TypeVar

import torch
from torch import Tensor

from directloss.structures.base import Structure, check_structure_type
from directloss.transforms import inside_transform

Fitting = TypeVar("Fitting", bound=Structure)


def fitting(rule: str, structure: Any, *kinds: type[Fitting], does: str = "does not relax") -> Fitting:
    """``structure`` itself. Raise TypeError, naming what fits, unless the rule takes such structures."""
    check_structure_type(structure)
    if not isinstance(structure, kinds):
        names = " and ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{rule} {does} {structure!r}; it takes {names}")
    return structure


def check_scores(scores: Tensor) -> None:
    """Raise TypeError unless scores are a floating-point tensor."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores: got {type(scores).__name__}, expected a torch.Tensor")
    if not scores.is_floating_point():
        raise TypeError(f"scores are {scores.dtype}, expected a floating-point dtype: call .float() on them")


def over_temperature(scores: Tensor, temperature: float, terms: int = 1) -> Tensor:
    """``scores / temperature``. Raise ValueError if a sum of so many ``terms`` of it would not be finite."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}, expected a positive number")
    scaled = scores / temperature
    if not inside_transform() and not torch.isfinite(terms * scaled.detach()).all():
        raise ValueError(
            f"scores / temperature hold NaN or infinite entries in {scores.dtype}; give finite scores, "
            "a higher temperature or a wider dtype"
        )
    return scaled
