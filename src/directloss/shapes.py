"""The axes of tensors: S samples, B batch (any number of axes), ``*E`` the structure's entries."""

from collections.abc import Sequence

import torch
from torch import Tensor


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape broadcasts to exactly the other."""
    aligned = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, wanted) for size, wanted in aligned)


def check_cost(cost: Tensor, scores: Tensor) -> None:
    """Raise where a cost does not broadcast to the scores."""
    if not broadcasts(cost.shape, scores.shape):
        raise ValueError(
            f"cost has shape {tuple(cost.shape)}, which does not broadcast to the scores' {tuple(scores.shape)}; "
            "give the cost the shape of the scores, or fewer leading axes"
        )


def fit_cost(cost: Tensor, scores: Tensor) -> Tensor:
    """The cost with the scores' shape, dtype and device."""
    check_cost(cost, scores)
    return cost.detach().to(scores).expand_as(scores)


def fit_scale(scale: float | Tensor, scores: Tensor, batch: torch.Size) -> Tensor:
    """A scale of one number, or one for each instance, or one for each entry, with as many axes as the scores."""
    if not isinstance(scale, int | float | Tensor):
        raise TypeError(f"scale is {type(scale).__name__}, expected a number or a tensor")
    factor = torch.as_tensor(scale, dtype=scores.dtype, device=scores.device)
    if factor.dim() <= len(batch):
        factor = factor[(..., *[None] * (scores.dim() - len(batch)))]
    if not broadcasts(factor.shape, scores.shape):
        raise ValueError(
            f"scale broadcasts as {tuple(factor.shape)}, which does not fit scores of shape {tuple(scores.shape)}; "
            f"expected one number, one for each instance {tuple(batch)}, or one for each entry"
        )
    return factor.reshape(*[1] * (scores.dim() - factor.dim()), *factor.shape)


def check_scale(scale: Tensor) -> None:
    """Raise where a scale is no scale. Called where vmap cannot hide its values."""
    if scale.numel():
        low, high = (bound.item() for bound in torch.aminmax(scale))
        if not 0 <= low <= high < float("inf"):
            raise ValueError(
                f"scale runs from {low} to {high}; expected finite numbers >= 0 "
                "(dl.nets.positive, a softplus, keeps a learned scale positive)"
            )
