"""The free certificate of a maximiser that is called more than once.

Solved for several steps t, each solution must be at least as good for its own ``scores + t * cost`` as the solutions
of the other steps are. A solver that minimises, or that stops too early, fails this soon.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from directloss.later import later
from directloss.parts import Vertices

if TYPE_CHECKING:
    from directloss.structures.base import Structure

_kernels = later("directloss.structures.kernels.shortfall")
# Relative to the sum of |scores| |y|; solvers may add up in float32.
_TOLERANCE = 1e-5


class WrongMaximizerError(ValueError):
    """A maximiser returned a structure that another of its own answers beats."""


def certify(
    structure: "Structure",
    parts: tuple[Tensor, ...],
    cost: Tensor,
    steps: Sequence[float],
    vertices: tuple[Vertices, ...],
) -> None:
    """Raise ``WrongMaximizerError``, or warn where ``structure.exact`` is False, if an answer beats another."""
    count, leading = len(steps), vertices[0].slots.shape[1:-1]
    along = _weighed(vertices[0], cost, count)
    plain = _weighed(vertices[0], parts[0], count)
    for found, part in zip(vertices[1:], parts[1:], strict=True):
        plain = plain + _weighed(found, part, count)
    step, index = _kernels().worst_shortfall(plain, along, np.array(steps), _TOLERANCE)
    if step < 0:
        return
    values = plain[0] + steps[step] * along[0]  # of the answer of each step under the scores of this one
    own, best = values[step, index], values[:, index].max()
    instance = tuple(int(i) for i in np.unravel_index(index, leading))
    message = (
        f"{structure!r} did not maximise: at index {instance} of its scores and step {steps[step]:g} its answer "
        f"is worth {own:.6g}, but another of its answers is worth {best - own:.6g} more"
    )
    if structure.exact:
        hint = (
            "it seems to minimise: pass minimize=True to dl.custom"
            if _minimizes(plain, along, steps)
            else "for a heuristic pass exact=False"
        )
        raise WrongMaximizerError(f"{message} ({hint}; dl.check_structure tries more)")
    warnings.warn(message, stacklevel=2)


def _weighed(vertices: Vertices, weights: Tensor, count: int) -> np.ndarray:
    """``<weights, y>`` and ``<|weights|, |y|>``, (2, T, N)."""
    return vertices.weigh(weights).reshape(2, count, -1)


def _minimizes(plain: np.ndarray, along: np.ndarray, steps: Sequence[float]) -> bool:
    """Whether no answer is worth more than another of them under its own scores."""
    sizes = plain[1] + max(map(abs, steps)) * along[1]
    values = plain[0] + np.reshape(steps, (-1, 1, 1)) * along[0]
    own = values[range(len(steps)), range(len(steps))]
    return bool((own - values.min(1) <= _TOLERANCE * sizes.max(0)).all())
