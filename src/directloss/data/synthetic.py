"""Costs that depend on features, as the papers on predict-then-optimise draw them (Elmachtoub and Grigas 2022).

    cost = scale ((B x / sqrt p + 3)^degree + 1) / 3.5^degree * noise,   B ~ Bernoulli(1/2),  x ~ N(0, 1),
                                                                       noise ~ U(1 - width, 1 + width)

A linear model is right at degree 1 and further off at higher ones. With the same arguments the numbers are those of
PyEPO 2.2.7's generators, so that results can be laid beside published ones.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def shortest_path(
    count: int, features: int = 5, grid: tuple[int, int] = (5, 5), degree: int = 4, width: float = 0.5, seed: int = 42
) -> tuple[Floats, Floats]:
    """Features (count, p) and the costs (count, edges) of a grid's edges, in the order of ``dl.GridPath(shape=grid)``.

    Example:
        >>> x, cost = shortest_path(2000)
        >>> x.shape, cost.shape, round(float(cost.mean()), 4)
        ((2000, 5), (2000, 40), 0.7209)
    """
    rows, columns = grid
    random = np.random.RandomState(seed)
    x, cost = _draw(random, count, features, rows * (columns - 1) + (rows - 1) * columns, degree, width)
    return x, cost.astype(np.float32)


def knapsack(
    count: int,
    features: int = 5,
    items: int = 16,
    constraints: int = 2,
    degree: int = 6,
    width: float = 0.5,
    seed: int = 135,
) -> tuple[Floats, Floats, Floats]:
    """Weights (constraints, items), features (count, p), and the values (count, items) of items, whole numbers.

    Example:
        >>> weights, x, values = knapsack(1100)
        >>> weights.shape, x.shape, values.shape, weights[0, :3].tolist()
        ((2, 16), (1100, 5), (1100, 16), [4.59, 4.87, 5.19])
    """
    random = np.random.RandomState(seed)
    weights = random.choice(np.arange(300, 800), (constraints, items)) / 100
    x, values = _draw(random, count, features, items, degree, width, 5)
    return weights, x, np.ceil(values).astype(np.float32)


def _draw(
    random: np.random.RandomState, count: int, features: int, entries: int, degree: int, width: float, scale: int = 1
) -> tuple[Floats, Floats]:
    """The order of the draws, and of the operations, is the published one: rounding is part of the numbers."""
    bernoulli = random.binomial(1, 0.5, (entries, features))
    x = random.normal(0, 1, (count, features))
    cost = ((x @ bernoulli.T / np.sqrt(features) + 3) ** degree + 1) * scale / 3.5**degree
    return x, cost * random.uniform(1 - width, 1 + width, (count, entries))
