"""The free certificate of a maximiser that is called more than once.

Solved for several steps t, each solution must be at least as good for its own ``scores + t * cost`` as the solutions
of the other steps are. A solver that minimises, or that stops too early, fails this soon.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
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
    along, size = _value(vertices[0], cost)
    plain = torch.zeros_like(along)
    size = size * max(abs(step) for step in steps)
    for part, found in zip(parts, vertices, strict=True):
        value, magnitude = _value(found, part)
        plain, size = plain + value, size + magnitude
    at = torch.tensor(steps, dtype=plain.dtype, device=plain.device)
    # values[s, t]: the answer of step t under the scores of step s.
    values = plain + at.reshape(-1, *[1] * plain.dim()) * along
    own = torch.stack([values[s, s] for s in range(len(steps))])
    tolerance = _TOLERANCE * size.amax(0)
    short = values.amax(1) - own
    worst, where = (short - tolerance).flatten().max(0)
    if worst <= 0:
        return
    over = (own - values.amin(1)) <= tolerance
    step, *instance = (int(i) for i in torch.unravel_index(where, short.shape))
    reached, missed = own.flatten()[where].item(), short.flatten()[where].item()
    message = (
        f"{structure!r} did not maximise: at index {tuple(instance)} of its scores and step {steps[step]:g} its answer "
        f"is worth {reached:.6g}, but another of its answers is worth {missed:.6g} more"
    )
    if structure.exact:
        hint = (
            "it seems to minimise: pass minimize=True to dl.custom"
            if over.all()
            else "for a heuristic pass exact=False"
        )
        raise WrongMaximizerError(f"{message} ({hint}; dl.check_structure tries more)")
    warnings.warn(message, stacklevel=2)


def _value(vertices: Vertices, weights: Tensor) -> tuple[Tensor, Tensor]:
    """``<weights, y>`` and ``<|weights|, |y|>``."""
    terms = vertices.at(weights)
    if vertices.values is not None:
        terms = terms * vertices.values
    return terms.sum(-1), terms.abs().sum(-1)
