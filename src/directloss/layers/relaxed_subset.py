"""RelaxSubSample (Xie & Ermon 2019): k of n by k successive softmaxes of perturbed scores.

With keys alpha, the perturbed scores, and a temperature t, repeat k times

    p = softmax(alpha / t),   alpha <- alpha + log(1 - p),

and add up the p. With Gumbel noise, the k largest keys are a sample without replacement.
"""

import torch
from torch import Tensor

from directloss.layers.checks import check_scores, fitting, over_temperature
from directloss.structures.base import Structure
from directloss.structures.subset import Subset


def relaxed_subset(scores: Tensor, structure: Structure, temperature: float = 1.0) -> Tensor:
    """Scores (..., n) -> relaxed subsets (..., n), each with a sum of k. Differentiable. Takes ``Subset``, k a number.

    Towards temperature 0 they approach the k largest scores. Away from it an entry can be taken more than once and
    exceed 1: ``log(1 - p)`` lowers a key only as far as the competition is close.

    Args:
        scores: any number of batch axes. With Gumbel noise, by ``dl.perturb``, this is RelaxSubSample.
        structure: ``Subset(k)``, with a mask or without.
        temperature: the higher, the closer every entry is to k / n.

    Example:
        >>> import torch, directloss as dl
        >>> dl.relaxed_subset(torch.tensor([1.0, 4.0, 2.0, 3.0]), dl.Subset(2), temperature=0.001)
        tensor([0., 1., 0., 1.])
    """
    check_scores(scores)
    subset = fitting("relaxed_subset", structure, Subset)
    if subset.counts is not None:
        raise TypeError("relaxed_subset takes Subset(k) with one k for all instances")
    subset.batch_shape(scores)  # for its checks
    # A shift changes no softmax, but beside a large common offset the noise and log(1 - p) would be rounded away.
    centered = scores - scores.detach().amax(-1, keepdim=True)
    over_temperature(centered, temperature)  # for its checks
    keys = centered if subset.mask is None else centered.masked_fill(~subset.mask, -torch.inf)
    log_p = (keys / temperature).log_softmax(-1)
    total = log_p.exp()
    for _ in range(subset.largest - 1):
        keys = keys + _log_of_rest(log_p)
        log_p = (keys / temperature).log_softmax(-1)
        total = total + log_p.exp()
    return total


def _log_of_rest(log_p: Tensor) -> Tensor:
    """``log(1 - p)`` of two or more probabilities, finite and exact even where the largest rounds to 1.

    Of the largest, the rest is the sum of the others; each other is at most a half, so subtracting it from 1 is safe.
    """
    largest = log_p.argmax(-1, keepdim=True)
    others = log_p.scatter(-1, largest, -torch.inf)
    return torch.log1p(-others.exp()).scatter(-1, largest, others.logsumexp(-1, keepdim=True))
