"""A scale and an epsilon that find themselves: each is moved until a share of its own way is what it should be.

With theta = mu + sigma * gamma as in ``direct``, let y, y_minus and y_plus maximise theta, theta - e_minus * cost and
theta + e_plus * cost, and let y_0 maximise the scores mu alone. ``best`` and ``worst`` are the structures of the least
and of the largest cost; l(y) = <cost, y>; sums run over a batch. The scores learn from y_plus - y_minus, which is of
order one in any unit, and the three settings from three shares:

    closed   = (l(y) - l(y_minus)) / (l(y) - l(best))        is to be .9: y_minus goes far enough to show the way to
               better structures, and not so far that the scores do not matter to it;
    opened   = (l(y_plus) - l(y)) / (l(y) - l(y_minus))      is to be 1: y_plus is worse by as much as y_minus is
               better, or by .9 of the way to the worst, where that is less;
    given up = <mu, y_0 - y> / <mu, y_0 - worst>             is to be equal to
    missed   = (l(y_0) - l(best)) / (l(worst) - l(best)):    what noise costs in the eyes of the scores is what the
               scores cost in truth, and a quarter at most: more would drown scores that know little yet.

So noise is large while the scores know nothing, falls by itself as they learn, and stays where nothing more can be
known. It may fall at any time but rises at first only, as far as scores grow that began too small: later scores grow
because noise costs them much, and noise that followed would make them grow without end. No share has a unit: with costs
b * cost + c and scores a * mu every one is the same, and so is every update. The measurements behind it are in
docs/handsfree.md.
"""

import math
from typing import NamedTuple

import torch

from directloss.losses.policy import Policy

CLOSED, OPENED, GIVEN_UP = 0.9, 1.0, 0.25
_RATE = 0.3  # of the logarithm of an epsilon, for a share that is off by all of itself
_SCALE_RATE = 0.1  # of log sigma, for a share that is off by a factor of e or more
_RISING = 20  # steps; after t of them sigma rises at (20 / t)^2 of that rate: in all by a factor of e^4
_MEMORY = 0.9  # of the sums that the scale is judged by
_LARGEST = 80.0  # logarithm, either way: where a share cannot be reached, settings stay what float32 can hold
_NOTHING = 1e-3  # shares below it hardly count: where nothing is missed any more, a little noise keeps margins


class Seen(NamedTuple):
    """What a batch shows, in sums over its instances and means over their samples."""

    gap: float  # l(y) - l(best)
    closed: float  # l(y) - l(y_minus)
    opened: float  # l(y_plus) - l(y)
    spread: float  # l(worst) - l(best)
    given_up: float  # <mu, y_0 - y>
    at_stake: float  # <mu, y_0 - worst>
    missed: float  # l(y_0) - l(best)


class Shares(Policy):
    """sigma, and epsilon on both sides in units of sigma, as logarithms; what sigma is judged by; and steps."""

    def __init__(self) -> None:
        super().__init__(torch.full((8,), math.nan, dtype=torch.float64, device="cpu"))

    @property
    def started(self) -> bool:
        return not math.isnan(self.value[0])

    def start(self, score_unit: float, cost_unit: float) -> None:
        """Begin with noise as large as the scores are, and with costs that weigh as much."""
        if score_unit > 0 and cost_unit > 0:
            beginning = [math.log(score_unit), -math.log(cost_unit), -math.log(cost_unit) - 1, *[0.0] * 5]
            self.value.copy_(torch.tensor(beginning, dtype=torch.float64))

    def settings(self) -> tuple[float, float, float]:
        """sigma, e_minus and e_plus."""
        if not self.started:
            return 1.0, 1.0, 1.0
        log_scale, log_minus, log_plus = self.value[:3].tolist()
        return _exp(log_scale), _exp(log_minus + log_scale), _exp(log_plus + log_scale)

    def observe(self, seen: Seen, moves_scale: bool = True, moves_plus: bool = True) -> None:
        """Move each setting that is in use by what a batch shows; where nothing is left to share, leave it."""
        log_scale, log_minus, log_plus, *kept, steps = self.value.tolist()
        if seen.gap > 0:
            log_minus += _RATE * _within(1.0, 1 - seen.closed / (CLOSED * seen.gap))
        if moves_plus and (way := min(OPENED * seen.closed, CLOSED * (seen.spread - seen.gap))) > 0:
            log_plus += _RATE * _within(1.0, 1 - seen.opened / way)
        if moves_scale:
            now = (seen.given_up, seen.at_stake, seen.missed, seen.spread)
            kept = [_MEMORY * old + (1 - _MEMORY) * new for old, new in zip(kept, now, strict=True)]
            given_up, missed = _share(*kept[:2]), min(_share(*kept[2:]), GIVEN_UP)
            error = _within(1.0, math.log((missed + _NOTHING) / (given_up + _NOTHING)))
            steps += 1
            log_scale += _SCALE_RATE * error * (min(1.0, (_RISING / steps) ** 2) if error > 0 else 1.0)
        logs = [_within(_LARGEST, log) for log in (log_scale, log_minus, log_plus)]
        self.value.copy_(torch.tensor([*logs, *kept, steps], dtype=torch.float64))

    def shares(self) -> dict[str, float]:
        """What noise costs in the eyes of the scores, and what the scores cost in truth."""
        kept = self.value[3:7].tolist()
        return {"given_up": _share(*kept[:2]), "missed": _share(*kept[2:])}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={share:.3g}" for name, share in self.shares().items()) if self.started else ""


def _within(most: float, value: float) -> float:
    return max(-most, min(most, value))


def _exp(log: float) -> float:
    return math.exp(_within(_LARGEST, log))


def _share(part: float, whole: float) -> float:
    return max(0.0, part / whole) if whole > 0 else 0.0
