"""The free certificate of a maximiser that is called more than once.

Solved for several steps t, each solution must be at least as good for its own ``scores + t * cost`` as the solutions
of the other steps are. A solver that minimises, or that stops too early, fails this soon.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from directloss.parts import Vertices

if TYPE_CHECKING:
    from directloss.structures.base import Structure

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
    count = len(steps)
    along, size = _weighed(vertices[0], cost, count)
    plain, size = 0.0 * along, max(map(abs, steps)) * size
    for part, found in zip(parts, vertices, strict=True):
        value, magnitude = _weighed(found, part, count)
        plain, size = plain + value, size + magnitude
    # values[s, t]: the answer of step t under the scores of step s.
    values = plain + np.reshape(steps, (count, 1, 1)) * along
    own = values[range(count), range(count)]
    tolerance = _TOLERANCE * size.max(0)
    short = values.max(1) - own
    where = np.unravel_index((short - tolerance).argmax(), short.shape)
    if short[where] <= tolerance[where[1]]:
        return
    over = (own - values.min(1)) <= tolerance
    instance = tuple(int(i) for i in np.unravel_index(where[1], vertices[0].slots.shape[1:-1]))
    message = (
        f"{structure!r} did not maximise: at index {instance} of its scores and step {steps[where[0]]:g} its answer "
        f"is worth {own[where]:.6g}, but another of its answers is worth {short[where]:.6g} more"
    )
    if structure.exact:
        hint = (
            "it seems to minimise: pass minimize=True to dl.custom"
            if over.all()
            else "for a heuristic pass exact=False"
        )
        raise WrongMaximizerError(f"{message} ({hint}; dl.check_structure tries more)")
    warnings.warn(message, stacklevel=2)


def _weighed(vertices: Vertices, weights: Tensor, count: int) -> Iterator[np.ndarray]:
    return (found.cpu().numpy().reshape(count, -1) for found in vertices.weigh(weights))
