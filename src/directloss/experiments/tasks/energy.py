"""Which half hours to sell energy in: a knapsack of real prices, from features of each half hour."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from directloss.data.tables import load_energy
from directloss.judging.regret import regret
from directloss.lab.problem import Instances, Metric, Problem
from directloss.structures.base import Structure
from directloss.structures.knapsack import Knapsack

_SPLIT = (550, 100, 139)  # days for training, validation and test, of 789 shuffled ones


def energy(config: Any, seed: int, data_dir: Any = None) -> Problem:
    """A linear model of the price, shared by the half hours; the seed shuffles the days."""
    found = load_energy(data_dir)
    order = torch.randperm(len(found.prices), generator=torch.Generator().manual_seed(seed))
    features, prices = (torch.from_numpy(array).float()[order] for array in (found.features, found.prices))
    known = features[: _SPLIT[0]].reshape(-1, features.shape[-1])
    features = (features - known.mean(0)) / known.std(0)
    everything = Instances(features, -prices / prices[: _SPLIT[0]].std())
    train, validation, test = (everything[part] for part in torch.arange(len(prices)).split(_SPLIT))
    structure = Knapsack(torch.from_numpy(found.weights), config.capacity)
    return Problem(
        partial(SharedLinear, features.shape[-1]),
        structure,
        train,
        test,
        validation,
        {"regret": Metric(relative_regret)},
    )


def relative_regret(scores: Tensor, instances: Instances, structure: Structure) -> Tensor:
    """The mean over days of the share of the best value that is lost."""
    return regret(scores, instances.cost, structure, normalize=True, reduction="none").mean()


class SharedLinear(nn.Module):
    """One linear model for all entries: features (..., n, p) -> scores (..., n)."""

    def __init__(self, features: int):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x)
        return scores.squeeze(-1)
