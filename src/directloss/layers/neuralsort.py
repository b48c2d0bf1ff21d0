"""NeuralSort (Grover et al. 2019): the permutation that sorts, relaxed to a matrix with one softmax in each row.

For scores s of n entries and a temperature tau, row i (from 1) is

    P_i = softmax(((n + 1 - 2 i) s - A_s 1) / tau),   A_s[j, l] = |s_j - s_l|.

Its largest entry stands where the i-th largest score does, and the first k rows alone are the k nearest neighbours.
"""

import torch
from torch import Tensor

from directloss.layers.checks import check_scores, over_temperature
from directloss.structures.subset import Subset


def neuralsort(values: Tensor, temperature: float = 1.0, k: int | None = None) -> Tensor:
    """Values (..., n) -> a relaxed permutation (..., n, n), largest first, or its first k rows (..., k, n).

    Rows sum to one, columns need not. Differentiable.

    Args:
        values: any number of batch axes. With noise, ``dl.perturb`` them first.
        temperature: towards 0 the result approaches the permutation; the higher, the closer to uniform.
        k: how many rows; None for all.

    Example:
        >>> import torch, directloss as dl
        >>> dl.neuralsort(torch.tensor([1.0, 3.0, 2.0]), temperature=0.001)
        tensor([[0., 1., 0.],
                [0., 0., 1.],
                [1., 0., 0.]])
    """
    check_scores(values)
    Subset(1 if k is None else k).batch_shape(values)  # for its checks
    n = values.shape[-1]
    wide = values.to(torch.promote_types(values.dtype, torch.float32))  # sums in half precision would overflow
    scaled = over_temperature(_centered(wide).contiguous(), temperature, terms=3 * n)
    weight = n - 1 - 2 * torch.arange(n if k is None else k, device=values.device).unsqueeze(-1)
    logits = weight * scaled.unsqueeze(-2) - _distance_sums(scaled).unsqueeze(-2)
    return logits.softmax(-1).to(values.dtype)


def _centered(scores: Tensor) -> Tensor:
    """Scores less their median: no softmax sees the shift, but a large common offset would drown the differences."""
    return scores - scores.detach().median(-1, keepdim=True).values


def _distance_sums(s: Tensor) -> Tensor:
    """``A_s 1``: the sum over l of ``|s_j - s_l|``, from prefix sums of the sorted scores instead of all pairs.

    With a scores below s_j, b not above it and P_m the sum of the m smallest, it is
    ``(a + b - n) s_j - P_a - P_b + P_n``. Ties are in neither part, so their gradient is sign(0) = 0.
    """
    ordered, order = s.sort(-1)
    prefix = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))
    # Searching for sorted values is far faster than for the same values in any order.
    a, b = (torch.searchsorted(ordered.detach(), ordered.detach(), right=right) for right in (False, True))
    sums = (a + b - s.shape[-1]) * ordered - prefix.gather(-1, a) - prefix.gather(-1, b) + prefix[..., -1:]
    return torch.empty_like(s).scatter(-1, order, sums)
