"""The rules that are compared, as data: each is a public name of the library with settings, and what it sees.

A rule is a loss with a cost, a loss with a target (of a structure, or of a pool of solutions so far), a layer whose
decision is charged with the cost, or a criterion with state. ``METHODS`` has one line for each; a user's own is a
function ``loss(scores, cost, structure, generator=g)`` or a criterion.
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from directloss.lab.problem import Instances
from directloss.noise import Normal
from directloss.structures.base import Structure
from directloss.structures.pool import Pool

# Scores, the batch, its structure and a generator -> a loss with a gradient.
Step = Callable[[Tensor, Instances, Structure, torch.Generator], Tensor]
_SOLVE_SHARE = 0.1  # of a pool
# What a rule has to know about the past.
FULL, BEST, TAKEN = "full cost", "best decision", "cost of decisions taken"


def least_squares(scores: Tensor, values: Tensor, structure: Structure) -> Tensor:
    """Two stages: predict the values, decide later. Entries whose value is NaN do not count."""
    there = ~values.isnan()
    return ((scores - values)[there] ** 2).mean()


@dataclass(frozen=True)
class Method:
    """A rule with its settings."""

    rule: str | Callable[..., Any]  # a public name, or the function itself
    kind: Literal["cost", "target", "pool", "layer", "criterion", "values"] = "cost"
    sees: str = FULL
    settings: Mapping[str, Any] = field(default_factory=dict)

    def start(self, structure: Structure, targets: Tensor | None = None) -> Step:
        """The rule for one training; a criterion, or a pool that knows the targets, begins with a state of its own."""
        import directloss

        rule = getattr(directloss, self.rule) if isinstance(self.rule, str) else self.rule
        if self.kind == "criterion":
            rule = copy.deepcopy(rule) if isinstance(rule, nn.Module) else rule(structure, **self.settings)
            return Criterion(rule)
        pool = Pool(structure, _SOLVE_SHARE) if self.kind == "pool" else None
        if pool is not None and targets is not None:
            pool.add(targets)
        takes = inspect.signature(rule).parameters
        rule = partial(rule, **self.settings)
        draws = "generator" in takes or any(one.kind is one.VAR_KEYWORD for one in takes.values())

        def step(scores: Tensor, batch: Instances, structure: Structure, generator: torch.Generator) -> Tensor:
            drawn = {"generator": generator} if draws else {}
            if self.kind == "layer":
                # Steps are in units of an instance's cost; what arrives at the layer is that of a mean.
                far = {"step": self.settings["step"] * len(batch)} if "step" in self.settings else {}
                y: Tensor = rule(scores, structure, **drawn, **far)
                return (y * batch.cost).sum() / len(batch)
            known = {"cost": batch.cost, "values": batch.values}.get(self.kind, batch.target)
            known = -batch.cost if self.kind == "values" and known is None else known
            loss: Tensor = rule(scores, known, pool or structure, **drawn)
            return loss.mean()

        return step


class Criterion:
    """A step with state."""

    def __init__(self, criterion: nn.Module):
        self.criterion = criterion

    def __call__(self, scores: Tensor, batch: Instances, structure: Structure, generator: torch.Generator) -> Tensor:
        loss: Tensor = self.criterion(scores, batch.cost, structure=structure, generator=generator)
        return loss.mean()

    def state(self) -> dict[str, float]:
        """What the criterion says of itself, in numbers."""
        about: Mapping[str, Any] = getattr(self.criterion, "state", dict)()
        pairs = [(name, value if isinstance(value, tuple) else (value,)) for name, value in about.items()]
        named = {f"{name}{i or ''}": value for name, values in pairs for i, value in enumerate(values)}
        numbers = {name: float(value) for name, value in named.items() if isinstance(value, Tensor | float | int)}
        return {name: number for name, number in numbers.items() if math.isfinite(number)}


METHODS = {
    "least-squares": Method(least_squares, "values"),
    "direct": Method("DirectLoss", "criterion"),
    "spo+": Method("spo_plus"),
    "fenchel-young": Method("fenchel_young", "target", BEST, {"scale": 1.0, "noise": Normal(), "samples": 3}),
    "blackbox": Method("blackbox", "layer", settings={"step": 10.0}),
    "imle": Method("imle", "layer", settings={"step": 10.0}),
    "identity": Method("identity", "layer"),
    "contrastive": Method("contrastive", "pool", BEST),
    "reinforce": Method("reinforce", sees=TAKEN, settings={"scale": 1.0, "noise": Normal(), "samples": 10}),
}


def as_method(name: str, given: Any) -> Method:
    """What a user gives as a rule: a name of ours, a function, a criterion or a ``Method``."""
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        if given not in METHODS:
            raise ValueError(f"losses: there is no {given!r}; choose from {', '.join(METHODS)}, or give a function")
        return METHODS[given]
    if isinstance(given, nn.Module):
        return Method(given, "criterion")
    if callable(given):
        return Method(given)
    raise TypeError(
        f"losses: {name} is {type(given).__name__}, expected a name, a function loss(scores, cost, structure, "
        "generator=g), a criterion such as dl.DirectLoss(structure), or a Method"
    )
