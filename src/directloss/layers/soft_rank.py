"""Soft ranks (Blondel et al. 2020): ranks projected, so that they have a gradient.

Ranks are the permutation of rho = (n, ..., 1) that is best for the values; the soft ones are

    quadratic:  argmin { |y - values / r|^2 : y in P(rho) },
    entropic:   argmin { KL(y, exp(values / r)) : y in P(rho) }

with a regularisation of strength r and P(rho) the hull of all permutations. Isotonic regression, O(n log n).
"""

from torch import Tensor

from directloss.layers.isotonic import Kind, Projection, check_values, places


def soft_rank(
    values: Tensor, regularization: float = 1.0, kind: Kind = "quadratic", descending: bool = False
) -> Tensor:
    """Values (..., n) -> their soft ranks (..., n), from 1 for the smallest to n. Differentiable to any order.

    Values whose distance over ``regularization`` is large enough have exact ranks, and no gradient; the closer they
    are, the more their ranks mix. Ties share the mean of their ranks. All sum to n (n + 1) / 2.

    Args:
        values: any number of batch axes. With noise, ``dl.perturb`` them first.
        regularization: its strength; towards 0 the ranks are exact, and upwards all are (n + 1) / 2.
        kind: "quadratic" or "entropic".
        descending: 1 for the largest.

    Example:
        >>> import torch, directloss as dl
        >>> dl.soft_rank(torch.tensor([3.0, 0.5, 0.7, 9.0]), regularization=1.0)
        tensor([3.0000, 1.4000, 1.6000, 4.0000])
    """
    wide = check_values(values, regularization, kind)
    entropic, rho = kind == "entropic", places(values)
    scale = (-1 if descending else 1) / regularization
    return Projection(rho.log() if entropic else rho, scale, True, entropic)(wide).to(values.dtype)
