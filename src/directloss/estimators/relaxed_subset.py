"""RelaxSubSample (Xie & Ermon 2019): k of n by k successive softmaxes of perturbed scores.

With keys alpha = scores + noise_factor * noise and a temperature t, repeat k times

    p = softmax(alpha / t),   alpha <- alpha + log(1 - p),

and add up the p. With Gumbel noise, the k largest keys are a sample without replacement.
"""

import torch
from torch import Tensor

from directloss.estimators.checks import check_subset, over_temperature
from directloss.noise import Gumbel, Noise, draw


def relaxed_subset(
    scores: Tensor,
    k: int,
    temperature: float = 1.0,
    samples: int = 1,
    noise_factor: float = 1.0,
    noise: Noise | Tensor = Gumbel(),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Scores (..., n) -> relaxed subsets (samples, ..., n), each with a sum of k. Differentiable.

    Towards temperature 0 they approach the k largest keys. Away from it an entry can be taken more than once and exceed
    1: ``log(1 - p)`` lowers a key only as far as the competition is close.

    Args:
        scores: any number of batch axes.
        k: how many to take.
        temperature: the higher, the closer every entry is to k / n.
        samples: draws for each instance.
        noise_factor: 0 relaxes the k largest scores, without noise.
        noise: what is drawn, or the draws themselves, (samples, ..., n).
        generator: the only source of randomness (None: torch's default generator).

    Example:
        >>> import torch, directloss as dl
        >>> dl.relaxed_subset(torch.tensor([1.0, 4.0, 2.0, 3.0]), k=2, temperature=0.001, noise_factor=0)
        tensor([[0., 1., 0., 1.]])
    """
    check_subset(scores, k)
    # A shift changes no softmax, but beside a large common offset the noise and log(1 - p) would be rounded away.
    centered = scores - scores.detach().amax(-1, keepdim=True)
    keys = centered + noise_factor * draw(noise, samples, scores, generator)
    log_p = over_temperature(keys, temperature).log_softmax(-1)
    subset = log_p.exp()
    for _ in range(k - 1):
        keys = keys + _log_of_rest(log_p)
        log_p = (keys / temperature).log_softmax(-1)
        subset = subset + log_p.exp()
    return subset


def _log_of_rest(log_p: Tensor) -> Tensor:
    """``log(1 - p)`` of two or more probabilities, finite and exact even where the largest rounds to 1.

    Of the largest, the rest is the sum of the others; each other is at most a half, so subtracting it from 1 is safe.
    """
    largest = log_p.argmax(-1, keepdim=True)
    others = log_p.scatter(-1, largest, -torch.inf)
    return torch.log1p(-others.exp()).scatter(-1, largest, others.logsumexp(-1, keepdim=True))
