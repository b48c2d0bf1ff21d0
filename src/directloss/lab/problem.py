"""A decision to learn: instances with features and costs, a net, a structure, and what is measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from directloss.judging.regret import regret
from directloss.structures.base import Structure

# Scores, the instances they are for and their structure -> (B...), or one number for all of them.
Measure = Callable[[Tensor, "Instances", Structure], Tensor]


@dataclass(frozen=True)
class Instances:
    """N instances. A net sees the features; a rule sees the costs, the best decisions, or what a decision cost."""

    features: Tensor  # (N, ...)
    cost: Tensor  # (N, *E), minimised
    given: tuple[Tensor, ...] = ()  # data of the structure, (N, ...) each
    # What least squares regresses scores on, where it is not -cost; NaN where an entry does not count.
    values: Tensor | None = None
    target: Tensor | None = None  # the best decisions (N, *E)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, which: Any) -> "Instances":
        return Instances(
            self.features[which],
            self.cost[which],
            tuple(tensor[which] for tensor in self.given),
            None if self.values is None else self.values[which],
            None if self.target is None else self.target[which],
        )


@dataclass(frozen=True)
class Metric:
    """Something measured on instances that the net has not seen."""

    measure: Measure
    higher: bool = False  # is better
    percent: bool = True
    each: bool = False  # one value for each instance is kept, to resample them


def normalized_regret(scores: Tensor, instances: Instances, structure: Structure) -> Tensor:
    """The sum of the regrets over the sum of the best values."""
    return regret(scores, instances.cost, structure, normalize=True)


@dataclass(frozen=True)
class Problem:
    """What every rule is given alike."""

    net: Callable[[], nn.Module]  # features -> scores, which predict -cost
    structure: Structure | Callable[..., Structure]  # of the instances' ``given``
    train: Instances
    test: Instances
    validation: Instances | None = None  # without it the last epoch counts
    # By name; the first one chooses the epoch.
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"regret": Metric(normalized_regret)})

    def structure_of(self, instances: Instances) -> Structure:
        return self.structure if isinstance(self.structure, Structure) else self.structure(*instances.given)

    def with_targets(self) -> "Problem":
        """The training instances with their best decisions."""
        if self.train.target is not None:
            return self
        target = self.structure_of(self.train).solve(-self.train.cost)
        return replace(self, train=replace(self.train, target=target))

    @torch.no_grad()
    def judge(self, net: nn.Module, instances: Instances) -> dict[str, Tensor]:
        """Every metric of the net's decisions."""
        structure = self.structure_of(instances)
        scores = torch.cat([net(part) for part in instances.features.split(1000)])
        return {name: metric.measure(scores, instances, structure) for name, metric in self.metrics.items()}

    def described(self, found: Mapping[str, Tensor]) -> list[dict[str, Any]]:
        """Metrics as a row keeps them."""
        return [
            {
                "name": name,
                "value": found[name].mean().item(),
                "higher": metric.higher,
                "percent": metric.percent,
                "each": found[name].tolist() if metric.each else None,
            }
            for name, metric in self.metrics.items()
        ]
