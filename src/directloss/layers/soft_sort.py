"""Soft sorting (Blondel et al. 2020): sorted values projected, so that their gradient reaches every value nearby.

The values in order are the permutation that is best for rho = (n, ..., 1); the soft ones, the largest first, are

    quadratic:  argmin { |y - rho / r|^2 : y in P(values) },
    entropic:   log argmin { KL(y, exp(rho / r)) : y in P(exp(values)) }

with a regularisation of strength r and P the hull of all permutations. Isotonic regression, O(n log n).
"""

from torch import Tensor

from directloss.layers.isotonic import Kind, Projection, check_values, places


def soft_sort(
    values: Tensor, regularization: float = 1.0, kind: Kind = "quadratic", descending: bool = False
) -> Tensor:
    """Values (..., n) -> the values softly sorted (..., n), the smallest first. Differentiable to any order.

    Neighbours that are closer than 1 / ``regularization`` are sorted exactly; the others are drawn together until they
    are that close. The sum stays ("entropic": that of the exponentials).

    Args:
        values: any number of batch axes. With noise, ``dl.perturb`` them first.
        regularization: its strength; towards 0 the values are sorted, and upwards all are equal.
        kind: "quadratic" or "entropic".
        descending: the largest first.

    Example:
        >>> import torch, directloss as dl
        >>> dl.soft_sort(torch.tensor([3.0, 0.5, 0.7, 9.0]), regularization=0.5)
        tensor([0.5000, 2.2333, 4.2333, 6.2333])
    """
    wide = check_values(values, regularization, kind)
    y = Projection(places(values) / regularization, 1.0, False, kind == "entropic")(wide)
    return (y if descending else y.flip(-1)).to(values.dtype)
