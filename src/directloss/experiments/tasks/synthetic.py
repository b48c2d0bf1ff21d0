"""PyEPO's shortest path (its notebook 03) and its knapsack with two constraints (notebook 05)."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from directloss.data import synthetic
from directloss.lab.problem import Instances, Problem
from directloss.structures.finite import Finite
from directloss.structures.gridpath import GridPath

_TEST = 1000
_FIRST = 300  # the data seed of seed 0, where the data are drawn anew for each seed
_FEATURES = 5


def path(config: Any, seed: int, data_dir: Any = None) -> Problem:
    """The notebook's data, if ``data_seed`` is given, in its split; otherwise data of its own for each seed.

    Then the last 1,000 rows are the test.
    """
    count = _TEST + config.train
    drawn = _FIRST + seed if config.data_seed < 0 else config.data_seed
    size = (config.size, config.size)
    x, cost = synthetic.shortest_path(count, _FEATURES, size, config.degree, config.noise, drawn)
    train, test = _split(x, torch.from_numpy(cost), config, None if config.data_seed < 0 else 42)
    net = partial(nn.Linear, _FEATURES, cost.shape[1])
    return Problem(net, GridPath(shape=size), train, test)


def knapsack(config: Any, seed: int, data_dir: Any = None) -> Problem:
    """Values are maximised, so the cost is minus the value. Every feasible packing is a vertex."""
    count = _TEST + config.train
    drawn = _FIRST + seed if config.data_seed < 0 else config.data_seed
    weights, x, values = synthetic.knapsack(
        count, _FEATURES, config.size, degree=config.degree, width=config.noise, seed=drawn
    )
    train, test = _split(x, -torch.from_numpy(values), config, None if config.data_seed < 0 else 246)
    structure = Finite(packings(torch.from_numpy(weights), config.capacity))
    return Problem(partial(nn.Linear, _FEATURES, config.size), structure, train, test)


def _split(x: Any, cost: Tensor, config: Any, shuffle: int | None) -> tuple[Instances, Instances]:
    """Training and test: of a permutation the first 1,000 are the test, as in the notebooks, otherwise the last."""
    everything = Instances(torch.from_numpy(x).float(), cost)
    if shuffle is None:
        return everything[: config.train], everything[-_TEST:]
    order = np.random.RandomState(shuffle).permutation(len(x))
    return everything[order[_TEST : _TEST + config.train]], everything[order[:_TEST]]


def packings(weights: Tensor, capacity: float) -> Tensor:
    """Every set of items (N, items) that stays within the capacity in each row of ``weights``."""
    every, filled = torch.zeros(1, weights.shape[1]), torch.zeros(1, len(weights), dtype=torch.float64)
    for item, weight in enumerate(weights.T):
        fits = (filled + weight <= capacity + 1e-9).all(1)
        more = every[fits].clone()
        more[:, item] = 1
        every, filled = torch.cat([every, more]), torch.cat([filled, filled[fits] + weight])
    return every
