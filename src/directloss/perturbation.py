"""Perturbing scores: the one operation that every rule with noise shares."""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import TypeVar

import torch
from torch import Tensor

from directloss.noise import Gumbel, Noise
from directloss.parts import as_parts, broadcasts
from directloss.transforms import inside_transform

Scale = float | Tensor
_Scores = TypeVar("_Scores", Tensor, tuple[Tensor, ...])


def perturb(
    scores: _Scores,
    scale: Scale = 1.0,
    noise: Noise | Tensor = Gumbel(),
    samples: int = 1,
    *,
    entry_dims: int | None = None,
    multiplicative: bool = False,
    generator: torch.Generator | None = None,
) -> _Scores:
    """Scores with noise, (samples, B..., *E): ``scores + scale * noise``. Differentiable in scores and scale.

    Of scores in parts only the first is perturbed. Any layer or loss then takes the result, samples being one more
    batch axis: ``dl.sinkhorn(dl.perturb(scores, samples=10), dl.Matching())`` is Gumbel-Sinkhorn.

    Args:
        scores: (B..., *E), or a tuple of parts.
        scale: one number; one for each instance (B...), if ``entry_dims`` says where the batch ends; or a tensor with
            as many axes as the scores, which broadcasts to them.
        noise: what is drawn, or the draws themselves, (samples, B..., *E).
        samples: draws for each instance.
        entry_dims: how many of the last axes of the scores belong to one structure.
        multiplicative: ``scores * exp(scale * noise - scale^2 / 2)`` instead, which keeps every sign (and with
            ``Normal`` noise the mean).
        generator: the only source of randomness (None: torch's default generator).

    Example:
        >>> import torch, directloss as dl
        >>> dl.perturb(torch.zeros(4, 3), scale=0.5, samples=2).shape
        torch.Size([2, 4, 3])
        >>> (dl.perturb(-torch.ones(4, 3), 2.0, dl.Normal(), multiplicative=True) < 0).all()
        tensor(True)
    """
    first, *factors = as_parts(scores)
    batch = first.shape if entry_dims is None else first.shape[: first.dim() - entry_dims]
    factor, draws = fit_scale(scale, first, batch), draw(noise, samples, first, generator)
    if multiplicative:
        check_scale(factor)
        theta = first * torch.exp(factor * draws - factor**2 / 2)
    else:
        theta = perturbed(first, factor, draws)
    return (theta, *factors) if factors else theta  # type: ignore[return-value]


def perturbed(scores: Tensor, scale: Tensor | None, noise: Tensor | None) -> Tensor:
    """theta = mu + sigma * gamma, (S, B..., *E), of a scale and noise that fit; without them (1, B..., *E)."""
    if scale is None or noise is None:
        return scores.unsqueeze(0)
    check_scale(scale)
    return torch.addcmul(scores, scale, noise)


def draw(noise: Noise | Tensor, samples: int, scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """Noise for scores, (samples, *scores.shape): drawn, or given and checked."""
    samples = check_samples(samples)
    check_noise(noise)
    if isinstance(noise, Noise):
        return noise.sample((samples, *scores.shape), generator=generator, dtype=scores.dtype, device=scores.device)
    if noise.shape[1:] != scores.shape or not len(noise) or samples not in (1, len(noise)):
        raise ValueError(
            f"noise has shape {tuple(noise.shape)}, expected (samples, *{tuple(scores.shape)}) with samples = {samples}"
        )
    return noise.to(scores)


def check_noise(noise: Noise | Tensor) -> None:
    """Raise TypeError unless it can be noise."""
    if isinstance(noise, type) and issubclass(noise, Noise):
        raise TypeError(f"noise is the class {noise.__name__}; write dl.{noise.__name__}()")
    if not isinstance(noise, (Noise, Tensor)):
        raise TypeError(f"noise is {noise!r}, expected dl.Gumbel(), dl.Normal(), dl.Logistic() or a tensor of draws")


def check_samples(samples: int) -> int:
    """``samples`` as an int. Raise unless it is a number of draws."""
    try:
        count = operator.index(samples)
    except TypeError:
        raise TypeError(f"samples is {samples!r}, expected an int") from None
    if count < 1:
        raise ValueError(f"samples is {samples}, expected at least 1")
    return count


def fit_scale(scale: Scale, scores: Tensor, batch: Sequence[int]) -> Tensor:
    """A scale of one number, or one for each instance, or one for each entry, with as many axes as the scores."""
    if not isinstance(scale, Tensor):
        return torch.full((1,) * scores.dim(), scale_number(scale), dtype=scores.dtype, device=scores.device)
    factor = scale.to(scores)
    if factor.dim() <= len(batch):
        factor = factor[(..., *[None] * (scores.dim() - len(batch)))]
    if not broadcasts(factor.shape, scores.shape):
        raise ValueError(
            f"scale broadcasts as {tuple(factor.shape)}, which does not fit scores of shape {tuple(scores.shape)}; "
            f"expected one number, one for each instance {tuple(batch)}, or one for each entry"
        )
    return factor.reshape((*[1] * (scores.dim() - factor.dim()), *factor.shape))


def scale_number(scale: float) -> float:
    """A scale that is not a tensor as a float. Raise TypeError unless it is a number."""
    if not isinstance(scale, (float, Real)):
        raise TypeError(f"scale is {type(scale).__name__}, expected a number or a tensor")
    return float(scale)


def check_scale(scale: Scale) -> None:
    """Raise ValueError unless a scale is finite and not negative. Its values are out of reach inside a transform."""
    if isinstance(scale, Tensor):
        if not scale.numel() or inside_transform():
            return
        bounds = (scale, scale) if scale.numel() == 1 else torch.aminmax(scale.detach())
        low, high = bounds[0].item(), bounds[1].item()
    else:
        low = high = float(scale)
    if not 0 <= low <= high < math.inf:
        raise ValueError(
            f"scale runs from {low} to {high}; expected finite numbers >= 0 "
            "(dl.nets.positive, a softplus, keeps a learned scale positive)"
        )
