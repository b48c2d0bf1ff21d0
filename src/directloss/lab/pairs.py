"""Is one rule better than another? Paired differences under the same seeds, with their intervals."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the sign can be told."""
        return self.low > 0 or self.high < 0


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Student's interval of ``ours - theirs``; of one pair nothing is known."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    center = statistics.fmean(differences)
    if len(differences) < 2:
        return Difference(center, -math.inf, math.inf)
    half = student(len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return Difference(center, center - half, center + half)


def resampled(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """The percentile bootstrap over instances: 10,000 resamples, always the same ones."""
    differences = np.asarray(ours) - np.asarray(theirs)
    low, high = np.quantile(_resamples(len(differences)) @ differences, (0.025, 0.975))
    return Difference(float(differences.mean()), float(low), float(high))


@lru_cache(1)  # all pairs of a contest have as many instances
def _resamples(count: int) -> NDArray[np.float64]:
    """How often each of so many instances is drawn in each resample, as shares."""
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    places = drawn + count * np.arange(_RESAMPLES)[:, None]
    return np.bincount(places.ravel(), minlength=places.size).reshape(places.shape) / count


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution, by bisection of its distribution function.

    >>> round(student(1), 3), round(student(9), 3), round(student(100), 3)
    (12.706, 2.262, 1.984)
    """
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 0.95 else (low, middle)
    return low


def _within(t: float, degrees: int) -> float:
    """``P(|T| < t)``: a finite sum in the angle ``atan(t / sqrt(degrees))`` (Abramowitz and Stegun, 26.7.3 and 4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine, odd = math.cos(angle), degrees % 2
    term = math.sin(angle) * (cosine if odd else 1.0)
    total = 0.0 if degrees == 1 else term
    for k in range(2 + odd, degrees, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return (angle + total) * 2 / math.pi if odd else total


def best_of(found: Mapping[str, Mapping[str, Difference]]) -> str | None:
    """The rule that is better than every other one by more than can be chance; None if there is none.

    ``found[a][b]`` is the difference of a to b, negative where a is better.
    """
    return next((name for name, rivals in found.items() if rivals and all(d.high < 0 for d in rivals.values())), None)
