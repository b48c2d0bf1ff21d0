"""MNIST PM(4): the cheapest perfect matching of a 4x4 grid of digits, two neighbours read as a number.

Pogancic et al. 2020: the digits come from 1,000 images, there are 10,000 training grids, and the net learns from the
best matchings alone, by the Hamming loss, with Adam. For every loss our net has a hidden layer more than theirs, and
the learning rate falls to zero. Test grids are new grids of the same images, or, if asked for, of MNIST's test images,
which is harder: one digit that is misread spoils a grid.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from directloss import costs
from directloss.data.images import load
from directloss.judging.regret import regret
from directloss.lab.problem import Instances, Metric, Problem
from directloss.structures.base import Structure
from directloss.structures.finite import Finite

_SIDE = 4
_POOL, _TEST = 1000, 1000  # digits that grids are made of, and test grids
# Neighbours: to the right, then below.
EDGES = torch.tensor(
    [(i, i + 1) for i in range(_SIDE**2) if (i + 1) % _SIDE] + [(i, i + _SIDE) for i in range(_SIDE**2 - _SIDE)]
)


def matching(config: Any, seed: int, data_dir: Any = None) -> Problem:
    mnist = load("mnist", data_dir)
    generator = torch.Generator().manual_seed(seed)
    images, digits = [], []
    for part in ("train", "test"):
        labels = getattr(mnist, f"{part}_labels")
        which = torch.randperm(len(labels), generator=generator)[:_POOL].numpy()
        images.append(torch.tensor(getattr(mnist, f"{part}_images")[which, 0]))
        digits.append(torch.tensor(labels[which]))
    structure = Finite(perfect_matchings(_SIDE).float())
    train = torch.randint(_POOL, (config.train, _SIDE**2), generator=generator)
    test = torch.randint(_POOL, (_TEST, _SIDE**2), generator=generator) + _POOL * config.unseen
    return Problem(
        partial(GridNet, torch.cat(images)),
        structure,
        _instances(train, torch.cat(digits), structure),
        _instances(test, torch.cat(digits), structure),
        metrics={"optimal": Metric(_optimal, higher=True)},
    )


def perfect_matchings(side: int) -> Tensor:
    """Every perfect matching of a grid, (N, edges): the first free cell is matched to the right or below."""
    place = {tuple(edge): number for number, edge in enumerate(EDGES.tolist())}

    def extend(free: frozenset[int]) -> list[list[int]]:
        if not free:
            return [[]]
        first = min(free)
        nexts = [cell for cell in (first + 1, first + side) if cell in free and (first, cell) in place]
        return [[place[first, cell], *rest] for cell in nexts for rest in extend(free - {first, cell})]

    every = torch.tensor(extend(frozenset(range(side**2))))
    return torch.zeros(len(every), len(EDGES), dtype=torch.int64).scatter_(1, every, 1)


def edge_costs(digits: Tensor) -> Tensor:
    """Ten times the first digit and the second one, in tens: (..., 16) -> (..., 24)."""
    return digits[..., EDGES[:, 0]] + digits[..., EDGES[:, 1]] / 10


def _instances(which: Tensor, digits: Tensor, structure: Structure) -> Instances:
    price = edge_costs(digits[which].float())
    target = structure.solve(-price)
    return Instances(which, costs.hamming(target), (price,), -price, target)


def _optimal(scores: Tensor, instances: Instances, structure: Structure) -> Tensor:
    """The share of grids whose matching costs no more than the best one."""
    (price,) = instances.given
    return (regret(scores, price, structure, reduction="none") < 1e-3).float().mean()


class GridNet(nn.Module):
    """Reads each digit by two convolutions and a hidden layer, once if a batch has it twice; edges' scores follow."""

    def __init__(self, images: Tensor):
        super().__init__()
        self.register_buffer("images", images, persistent=False)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 7),
            nn.ReLU(),
            nn.Conv2d(64, 1, 1),
        )

    def forward(self, which: Tensor) -> Tensor:
        different, places = which.unique(return_inverse=True)
        values = self.layers(self.images[different].unsqueeze(1).float() / 255)  # type: ignore[index]
        return -edge_costs(values.flatten()[places])
