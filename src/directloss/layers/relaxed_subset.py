"""RelaxSubSample (Xie & Ermon 2019): k of n by k successive softmaxes of perturbed scores.

With keys alpha, the perturbed scores, and a temperature t, repeat k times

    p = softmax(alpha / t),   alpha <- alpha + log(1 - p),

and add up the p, the rows of ``neural_neighbors``. With Gumbel noise, the k largest keys are a sample without
replacement.
"""

import functools

import torch
from torch import Tensor

from directloss.layers.neural_neighbors import successive_softmaxes
from directloss.structures.base import Structure


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
    rows = successive_softmaxes("relaxed_subset", scores, structure, temperature)
    return functools.reduce(torch.add, (log_p.exp() for log_p in rows))
