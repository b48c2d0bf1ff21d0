"""Top-k by entropic optimal transport (Xie et al. 2020): the items go to two places, k of them to "in".

Transporting n items with scores s to the places b = 0 and 1, n - k and k of them, at the cost (s_i - b)^2 and with an
entropy of weight 2 t, has the plan y_i = sigmoid((s_i + c) / t) for "in", where c makes ``sum_i y_i = k``: what
Sinkhorn's iterations converge to is one unknown number, and Newton's method finds it. So it is

    y = argmax { <scores, y> + t H(y) : 0 <= y <= 1, sum(y) = k },   H the entropy of n independent bits.
"""

import math

import torch
from torch import Tensor

from directloss.layers.checks import check_scores, fitting, over_temperature
from directloss.structures.base import Structure
from directloss.structures.partition import only
from directloss.structures.subset import Subset
from directloss.transforms import inside_transform

# Halving alone would bring any interval of float64 that occurs down to rounding in so many steps.
_MOST_STEPS = 100
# The two steps that carry the derivative square this twice.
_CLOSE = 1e-8


def ot_top_k(scores: Tensor, structure: Structure, temperature: float = 1.0) -> Tensor:
    """Scores (..., n) -> relaxed subsets (..., n) within 0 and 1, each with a sum of k. Takes ``Subset``.

    Differentiable to the third order: exactly, not through iterations.

    Args:
        scores: any number of batch axes.
        structure: ``Subset(k)``, k a number or one for each instance, with a mask or without.
        temperature: towards 0 the result approaches the k largest scores, upwards k / n. It is half of the weight of
            the entropy in the paper, which divides the scores by their range first.

    Example:
        >>> import torch, directloss as dl
        >>> dl.ot_top_k(torch.tensor([1.0, 4.0, 2.0, 3.0]), dl.Subset(2), temperature=0.5)
        tensor([0.0474, 0.9526, 0.2689, 0.7311])
    """
    check_scores(scores)
    subset = fitting("ot_top_k", structure, Subset)
    batch = subset.batch_shape(scores)
    if not inside_transform():
        subset.most_of(scores.shape[-1])
    counts = torch.as_tensor(subset.wanted, device=scores.device).expand(batch).unsqueeze(-1)
    allowed = torch.ones_like(scores, dtype=torch.bool) if subset.mask is None else subset.mask.expand(scores.shape)
    certain = (counts == 0) | (counts == allowed.sum(-1, keepdim=True))  # nothing or everything is taken
    wide = scores.double()
    # A common shift changes nothing: exact where it matters, between the last that is in and the first that is out.
    last, first = _border(only(wide.detach(), allowed), counts)
    keys = only(over_temperature(wide - last, temperature), allowed)
    shift = _shift(keys.detach(), counts, (last - first) / temperature, certain)
    for _ in range(2):  # of Newton's steps, one from the root has the root's derivative, and two have the first three
        shift = shift - _newton(torch.sigmoid(keys + shift), counts)
    y = torch.where(certain, allowed & (counts > 0), torch.sigmoid(keys + shift))
    return y.to(scores.dtype)


def _border(scores: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The k-th and the next largest score, (..., 1) each."""
    ordered = scores.sort(-1, descending=True).values
    last, first = (ordered.gather(-1, (counts - back).clamp(0, scores.shape[-1] - 1)) for back in (1, 0))
    return last, first


def _newton(y: Tensor, counts: Tensor) -> Tensor:
    slope = (y * (1 - y)).sum(-1, keepdim=True)
    # Where every sigmoid is 0 or 1 to rounding there is nothing to improve, nor a derivative.
    return (y.sum(-1, keepdim=True) - counts) / slope.clamp_min(torch.finfo(y.dtype).eps)


def _shift(keys: Tensor, counts: Tensor, gap: Tensor, certain: Tensor) -> Tensor:
    """c with ``sum sigmoid(keys + c) = k``, (..., 1), by Newton's method inside an interval that halves.

    The k-th key is 0 and the next ``-gap``. All sigmoids together stay below k while the k-th is at most
    1 / (n - k + 1), and the k + 1 largest reach k once the last is k / (k + 1): the root lies between.
    """
    slack = math.log(keys.shape[-1])
    low, high = -slack * torch.ones_like(gap), gap + slack
    shift = (low + high) / 2
    for _ in range(_MOST_STEPS):
        y = torch.sigmoid(keys + shift)
        excess = y.sum(-1, keepdim=True) - counts
        low, high = torch.where(excess < 0, shift, low), torch.where(excess > 0, shift, high)
        step = shift - _newton(y, counts)
        step = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
        # Inside a transform nobody can look whether it is done.
        done = not inside_transform() and bool((((step - shift).abs() <= _CLOSE * (1 + shift.abs())) | certain).all())
        shift = step
        if done:
            break
    return shift
