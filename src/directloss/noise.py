"""Zero-mean noise for the scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

EULER_GAMMA = 0.5772156649015329


@dataclass(frozen=True)
class Noise(ABC):
    """A zero-mean distribution, in its standard form (unit scale) or with a given ``variance``."""

    variance: float | None = None
    standard_variance: ClassVar[float]

    def __post_init__(self) -> None:
        if self.variance is not None and not (self.variance > 0 and math.isfinite(self.variance)):
            raise ValueError(f"variance is {self.variance}, expected a positive number, or None for the standard form")

    @property
    def scale(self) -> float:
        """What a standard draw is multiplied by."""
        return 1.0 if self.variance is None else math.sqrt(self.variance / self.standard_variance)

    def sample(
        self,
        shape: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Independent draws. Randomness comes only from ``generator`` (None: torch's default one)."""
        wanted = torch.get_default_dtype() if dtype is None else dtype
        drawn = wanted if wanted in (torch.float32, torch.float64) else torch.float32
        draw = self._standard(tuple(shape), {"generator": generator, "dtype": drawn, "device": device})
        return (draw if self.variance is None else draw.mul_(self.scale)).to(wanted)

    @abstractmethod
    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        """Draws of mean zero and unit scale."""


def _uniform(shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
    """Uniform draws in the open interval: ``torch.rand`` includes 0, whose logarithm is not finite."""
    return torch.rand(shape, **options).clamp_min_(torch.finfo(options["dtype"]).eps / 4)


class Gumbel(Noise):
    """Gumbel noise less its mean. ``Gumbel(variance=3)`` is what the paper's released program draws."""

    standard_variance = math.pi**2 / 6

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        # torch's own exponential_ would save a logarithm and be three times slower.
        return _uniform(shape, options).log_().neg_().log_().add_(EULER_GAMMA).neg_()


class Normal(Noise):
    """Gaussian noise."""

    standard_variance = 1.0

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return torch.randn(shape, **options)


class Logistic(Noise):
    """Logistic noise: the difference of two Gumbel draws."""

    standard_variance = math.pi**2 / 3

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return torch.logit(_uniform(shape, options))
