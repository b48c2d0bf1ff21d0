"""What was measured of a loss's gradients, and what follows from all measurements of an audit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from directloss.judging.drawing import NUMBERS
from directloss.judging.exact import Exact, Expectation
from directloss.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Measurement:
    """One setting of the loss, for one of its gradients."""

    target: str  # which gradient: "scores", "scale", or "part 1" and so on for the further parts of the scores
    scale: float
    settings: dict[str, Any]  # epsilon, sides, samples: those of them that the loss takes
    repetitions: int
    mean: Tensor  # (*E) or (): of the estimates
    bias: float  # length of mean - exact, less what noise alone would show
    bias_error: float  # its standard error, the exact value's included
    deviation: float  # root mean squared length of estimate - mean: one call's standard deviation
    cosine: float  # mean over calls of the cosine between estimate and exact gradient; 0 for a zero estimate
    signal: float  # mean part along the exact gradient over the root mean squared length; n samples raise it by sqrt(n)
    zero: float  # share of calls whose estimate is zero
    seconds: float  # of one call, forward and backward, in a batch

    @property
    def rule(self) -> str:
        """The loss's sides and the sign of its epsilon."""
        sides, epsilon = self.settings.get("sides"), self.settings.get("epsilon")
        if epsilon is None:
            return "-"
        return "both" if sides == "both" else "one, ε < 0" if epsilon < 0 else "one, ε > 0"


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """What ``audit`` found."""

    structure: str
    exact: dict[float, Exact]  # by scale
    rows: list[Measurement]

    def records(self) -> list[dict[str, Any]]:
        """A flat dict for each setting and gradient, without its mean."""
        return [
            {"target": row.target, "scale": row.scale, "rule": row.rule, **row.settings}
            | {name: getattr(row, name) for name in NUMBERS}
            for row in self.rows
        ]

    def texts(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Heading, header and lines."""
        shown = {"target": "{}", "scale": "{:g}", "rule": "{}", "epsilon": "{:.3g}", "bias": "{:.4f}"}
        shown |= {"bias_error": "{:.4f}", "deviation": "{:.3f}", "cosine": "{:.3f}", "zero": "{:.1%}"}
        body = [
            [show.format(one[name]) if name in one else "-" for name, show in shown.items()] for one in self.records()
        ]
        for line, row in zip(body, self.rows, strict=True):
            further = (f"{name}={value}" for name, value in row.settings.items() if name not in ("epsilon", "sides"))
            line.append(", ".join(further))
        header = ("gradient to", "σ", "rule", "ε", "bias", "± error", "std", "cosine", "zero", "settings")
        return f"Audit of gradients on {self.structure}", header, body

    def plot(self) -> "Figure":
        """Bias, deviation, cosine and zero gradients over epsilon, as a matplotlib figure; ``savefig`` saves it."""
        from directloss.judging.drawing import draw

        return draw(self.records())

    def slopes(self, target: str = "scores") -> dict[tuple[str, float], tuple[float, float]]:
        """The order of the bias in epsilon, and its standard error, by rule and scale. NaN where it cannot be told.

        ``log bias = log a + p log(epsilon) + q epsilon^r`` is fitted to the epsilons whose bias is above twice its
        error and below a quarter of the exact gradient, up to where it falls again; p is the order, and the last
        term, with r = 1 for one side and 2 for both, is the next order, which would tilt p where epsilon is not
        small. The error is that of the noise alone.
        """
        groups: dict[tuple[str, float], list[Measurement]] = {}
        for row in self.rows:
            if row.target == target and row.rule != "-" and row.scale > 0:
                groups.setdefault((row.rule, row.scale), []).append(row)
        return {group: self._slope(rows) for group, rows in groups.items()}

    def _slope(self, rows: Sequence[Measurement]) -> tuple[float, float]:
        largest = gradient_of(self.exact[rows[0].scale], rows[0].target).value.norm().item() / 4
        rows = list(_rising([row for row in rows if row.bias > 2 * row.bias_error], largest))
        size = torch.tensor([abs(row.settings["epsilon"]) for row in rows], dtype=torch.float64)
        if len(size.unique()) < 3:
            return math.nan, math.nan
        bias = torch.tensor([[row.bias, row.bias_error] for row in rows], dtype=torch.float64)
        weight = bias[:, :1] / bias[:, 1:]  # the inverse standard error of log bias
        power = 2 if rows[0].rule == "both" else 1
        terms = weight * torch.stack([torch.ones_like(size), size.log(), size**power], 1)
        covariance = torch.linalg.inv(terms.mT @ terms)
        fit = covariance @ terms.mT @ (weight * bias[:, :1].log())
        return fit[1].item(), covariance[1, 1].sqrt().item()

    def best(self, scale: float, target: str = "scores", overhead: float = 0.0) -> Measurement:
        """The setting with the most signal for its cost: the highest ``signal / sqrt(seconds + overhead)``.

        Averaging over n calls raises a small signal by sqrt(n) and the cost by n, so this figure does not reward
        samples for their own sake. ``overhead`` is what the rest of a training step costs, for one instance: with
        an expensive network more samples pay.
        """
        rows = [row for row in self.rows if row.target == target and row.scale == scale]
        if not rows:
            raise ValueError(f"no row for the {target} at scale {scale}; audited were {sorted(self.exact)}")
        worth = [row.signal / math.sqrt(row.seconds + overhead) for row in rows]
        return rows[max(range(len(rows)), key=lambda index: (not math.isnan(worth[index]), worth[index]))]


def _rising(rows: Sequence[Measurement], largest: float) -> Iterator[Measurement]:
    """Those whose bias is small, before it turns around."""
    highest = 0.0
    for row in sorted(rows, key=lambda row: abs(row.settings["epsilon"])):
        if row.bias + 2 * row.bias_error < highest:
            return
        highest = max(highest, row.bias)
        if row.bias < largest:
            yield row


def gradient_of(truth: Exact, target: str) -> Expectation:
    if target.startswith("part"):
        return truth.to_factors[int(target.split()[1]) - 1]
    return truth.to_scores if target == "scores" else truth.to_scale


class Tally:
    """Sums over the estimates of one gradient, from which everything about them follows."""

    def __init__(self, known: Expectation):
        self.known = known
        self.value = known.value.flatten()
        self.count, self.zeros, self.cosines, self.seconds = 0, 0, 0.0, 0.0
        self.total, self.squares = torch.zeros_like(self.value), torch.zeros_like(self.value)

    def add(self, estimates: Tensor, seconds: float) -> None:
        """Independent estimates, (R, -1), and what they took together."""
        estimates = estimates.to(self.value.device)
        lengths = estimates.norm(dim=1)
        cosines = estimates @ self.value / (lengths * self.value.norm()).clamp_min(_TINY)
        self.count += len(estimates)
        self.zeros += int((lengths == 0).sum())
        self.cosines += cosines.sum().item()
        self.seconds += seconds
        self.total += estimates.sum(0)
        self.squares += estimates.square().sum(0)

    def measurement(self, target: str, scale: float, settings: dict[str, Any]) -> Measurement:
        mean = self.total / self.count
        variance = (self.squares - self.total * mean).clamp_min(0) / (self.count - 1)
        noise = (variance / self.count + self.known.error.flatten() ** 2).sum()
        length = (self.squares.sum() / self.count).sqrt()  # root mean squared
        return Measurement(
            target=target,
            scale=scale,
            settings=settings,
            repetitions=self.count,
            mean=mean.reshape(self.known.value.shape),
            bias=((mean - self.value).square().sum() - noise).clamp_min(0).sqrt().item(),
            bias_error=noise.sqrt().item(),
            deviation=variance.sum().sqrt().item(),
            cosine=self.cosines / self.count,
            signal=(mean @ self.value / (length * self.value.norm()).clamp_min(_TINY)).item(),
            zero=self.zeros / self.count,
            seconds=self.seconds / self.count,
        )
