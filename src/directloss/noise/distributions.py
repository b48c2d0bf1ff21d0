"""Zero-mean noise for the scores."""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.later import later
from directloss.transforms import inside_transform

_kernels = later("directloss.noise.kernel")
EULER_GAMMA = 0.5772156649015329
# Handing fewer draws than four times this to another thread costs more than it gains.
_LEAST_COUNTERS = 25_000
_NO_BASE = np.empty(0, np.float32)


@dataclass(frozen=True)
class Noise(ABC):
    """A zero-mean distribution, in its standard form (unit scale) or with a given ``variance``."""

    variance: float | None = None
    standard_variance: ClassVar[float]
    _kernel_normal: ClassVar[bool | None] = None  # the kernel draws it, in float32: normal or Gumbel; None: torch does

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
        place = torch.get_default_device() if device is None else device
        place = torch.device(place) if isinstance(place, str) else place
        if self._by_kernel(place, drawn):
            out = np.empty(tuple(shape), np.float32)
            self._fill(out.reshape(1, out.size), generator)
            draw = torch.from_numpy(out)
        else:
            draw = self._standard(tuple(shape), {"generator": generator, "dtype": drawn, "device": place})
            draw = draw if self.variance is None else draw.mul_(self.scale)
        return draw if drawn == wanted else draw.to(wanted)

    def added_to(self, scores: Tensor, scale: float, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """``scores + scale * draws``, (samples, *scores.shape), with the draws of ``sample``. Never differentiates."""
        if self._by_kernel(scores.device, scores.dtype) and type(self).sample is Noise.sample:
            out = np.empty((samples, *scores.shape), np.float32)
            base = scores.contiguous().numpy().reshape(-1)
            self._fill(out.reshape(samples, scores.numel()), generator, base, scale)
            return torch.from_numpy(out)
        options: dict[str, Any] = {"dtype": scores.dtype, "device": scores.device}
        draws = self.sample((samples, *scores.shape), generator=generator, **options)
        return torch.addcmul(scores, torch.full((1,) * scores.dim(), scale, **options), draws)

    def fill(self, out: Tensor, generator: torch.Generator | None = None) -> None:
        """The draws of ``sample``, written to ``out``, which need not be contiguous."""
        ours = type(self).sample is Noise.sample  # a subclass that draws otherwise is asked
        if ours and self._by_kernel(out.device, out.dtype) and out[0].is_contiguous():
            self._fill(out.flatten(1).numpy(), generator)
        else:
            out.copy_(self.sample(out.shape, generator=generator, dtype=out.dtype, device=out.device))

    def _by_kernel(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Inside a torch.func transform a key would be a tensor of the transform's, not a number."""
        known = self._kernel_normal is not None and dtype == torch.float32 and device.type == "cpu"
        return known and not inside_transform()

    def _fill(
        self, out: np.ndarray, generator: torch.Generator | None, base: np.ndarray = _NO_BASE, sigma: float = 1.0
    ) -> None:
        """Fill (blocks, length), whose blocks are contiguous; the generator gives the kernel a key of 62 bits."""
        draw, normal, scale, times = _kernels().draw, self._kernel_normal, np.float32(self.scale), np.float32(sigma)
        key = np.uint64(_key.tensor.random_(0, 1 << 62, generator=generator).item())

        def work(first: int, last: int) -> int:
            return int(draw(out, key, normal, scale, first, last, base, times))

        threads.split(work, math.ceil(out.size / 4), least=_LEAST_COUNTERS)

    def quantile(self, uniform: Tensor) -> Tensor:
        """What is exceeded with probability ``1 - uniform``, elementwise."""
        return self.scale * self._standard_quantile(uniform)

    def density(self, value: Tensor) -> Tensor:
        """The probability density at ``value``, elementwise."""
        return self._standard_density(value / self.scale) / self.scale

    def score(self, value: Tensor) -> Tensor:
        """``-d log density / d value``, elementwise: what score-function gradients weigh a draw by."""
        return self._standard_score(value / self.scale) / self.scale

    def antithetic(
        self,
        shape: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """Draws in pairs, an even number along the first axis: the second half mirrors the quantiles of the first."""
        drawn = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        half = (shape[0] // 2, *shape[1:])
        least = torch.finfo(drawn).eps
        uniform = torch.rand(half, generator=generator, dtype=drawn, device=device).clamp_(least, 1 - least)
        return self.quantile(torch.cat([uniform, 1 - uniform])).to(dtype)

    @abstractmethod
    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        """Draws of mean zero and unit scale."""

    def _standard_quantile(self, uniform: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _standard_quantile, which exact values need")

    def _standard_density(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _standard_density, which exact values need")

    def _standard_score(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _standard_score, which score-function gradients need")


class _Key(threading.local):
    """Where a thread's generator writes the key of its next draws: faster than a new tensor for each."""

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.tensor = torch.empty((), dtype=torch.int64, device="cpu")


_key = _Key()


def _uniform(shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
    """Uniform draws in the open interval: ``torch.rand`` includes 0, whose logarithm is not finite."""
    return torch.rand(shape, **options).clamp_min_(torch.finfo(options["dtype"]).eps / 4)


class Gumbel(Noise):
    """Gumbel noise less its mean. ``Gumbel(variance=3)`` is what the paper's released program draws."""

    standard_variance = math.pi**2 / 6
    _kernel_normal = False

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        # torch's own exponential_ would save a logarithm, but is slower than both together.
        return _uniform(shape, options).log_().neg_().log_().add_(EULER_GAMMA).neg_()

    def _standard_quantile(self, uniform: Tensor) -> Tensor:
        return -torch.log(-torch.log(uniform)) - EULER_GAMMA

    def _standard_density(self, value: Tensor) -> Tensor:
        shifted = value + EULER_GAMMA
        return torch.exp(-shifted - torch.exp(-shifted))

    def _standard_score(self, value: Tensor) -> Tensor:
        return -torch.expm1(-(value + EULER_GAMMA))


class Normal(Noise):
    """Gaussian noise."""

    standard_variance = 1.0
    _kernel_normal = True

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return torch.randn(shape, **options)

    def _standard_quantile(self, uniform: Tensor) -> Tensor:
        quantile: Tensor = torch.special.ndtri(uniform)
        return quantile

    def _standard_density(self, value: Tensor) -> Tensor:
        return torch.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)

    def _standard_score(self, value: Tensor) -> Tensor:
        return value


class Logistic(Noise):
    """Logistic noise: the difference of two Gumbel draws."""

    standard_variance = math.pi**2 / 3

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return self._standard_quantile(_uniform(shape, options))

    def _standard_quantile(self, uniform: Tensor) -> Tensor:
        return torch.logit(uniform)

    def _standard_density(self, value: Tensor) -> Tensor:
        return torch.sigmoid(value) * torch.sigmoid(-value)

    def _standard_score(self, value: Tensor) -> Tensor:
        return torch.tanh(value / 2)
