"""Neural nearest neighbours (Ploetz & Roth 2018): k of n by k successive softmaxes, one for each neighbour.

With keys alpha, for neighbours the negative distances, and a temperature t, repeat for j = 1, ..., k

    w_j = softmax(alpha / t),   alpha <- alpha + log(1 - w_j).

Their sum is ``relaxed_subset`` (Xie & Ermon 2019), which is made of the same rows.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from directloss.layers.checks import check_scores, fitting, over_temperature
from directloss.structures.base import Structure
from directloss.structures.subset import Subset


def neural_neighbors(scores: Tensor, structure: Structure, temperature: float = 1.0) -> Tensor:
    """Scores (..., n) -> weights of k neighbours (..., k, n), each row with a sum of one. Takes ``Subset``, k a number.

    Differentiable. ``weights @ features`` are k soft neighbours. Towards temperature 0 row j approaches the j-th
    largest score.

    Args:
        scores: any number of batch axes; for nearest neighbours the negative distances.
        structure: ``Subset(k)``, with a mask or without.
        temperature: the higher, the closer every entry is to 1 / n.

    Example:
        >>> import torch, directloss as dl
        >>> dl.neural_neighbors(torch.tensor([1.0, 4.0, 2.0, 3.0]), dl.Subset(2), temperature=0.001)
        tensor([[0., 1., 0., 0.],
                [0., 0., 0., 1.]])
    """
    return torch.stack(
        [log_w.exp() for log_w in successive_softmaxes("neural_neighbors", scores, structure, temperature)], -2
    )


def successive_softmaxes(layer: str, scores: Tensor, structure: Structure, temperature: float) -> Iterator[Tensor]:
    """The logarithms of w_1, ..., w_k, (..., n) each."""
    check_scores(scores)
    subset = fitting(layer, structure, Subset)
    if subset.counts is not None:
        raise TypeError(f"{layer} takes Subset(k) with one k for all instances")
    subset.batch_shape(scores)  # for its checks
    # A shift changes no softmax, but beside a large common offset the noise and log(1 - w) would be rounded away.
    centered = scores - scores.detach().amax(-1, keepdim=True)
    over_temperature(centered, temperature)  # for its checks
    keys = centered if subset.mask is None else centered.masked_fill(~subset.mask, -torch.inf)
    log_w = (keys / temperature).log_softmax(-1)
    yield log_w
    for _ in range(subset.largest - 1):
        keys = keys + _log_of_rest(log_w)
        log_w = (keys / temperature).log_softmax(-1)
        yield log_w


def _log_of_rest(log_p: Tensor) -> Tensor:
    """``log(1 - p)`` of two or more probabilities, finite and exact even where the largest rounds to 1.

    Of the largest, the rest is the sum of the others; each other is at most a half, so subtracting it from 1 is safe.
    """
    largest = log_p.argmax(-1, keepdim=True)
    others = log_p.scatter(-1, largest, -torch.inf)
    return torch.log1p(-others.exp()).scatter(-1, largest, others.logsumexp(-1, keepdim=True))
