"""Losses over a set of known solutions: what a pool, or a list, holds."""

from typing import NamedTuple

import torch
from torch import Tensor

from directloss.dtypes import wide
from directloss.layers.checks import fitting
from directloss.losses.problem import Problem
from directloss.losses.reduction import Reduction
from directloss.parts import Scores, as_parts
from directloss.structures.base import Structure
from directloss.structures.finite import Finite
from directloss.structures.pool import Pool


class Candidates(NamedTuple):
    """Solutions that the scores are compared on."""

    problem: Problem
    scores: Tensor  # (B..., E), flat, differentiable any number of times: no decision is in the way
    solutions: Tensor  # (..., N, E), flat

    @classmethod
    def of(cls, rule: str, scores: Scores, structure: Structure, reduction: Reduction) -> "Candidates":
        """Let a pool solve for the share of the scores that it wants to, and take all solutions that it knows."""
        fitting(rule, structure, Pool, Finite, does="does not compare the solutions of")
        problem = Problem.of(scores, structure, reduction)
        flat = wide(as_parts(scores)[0].flatten(len(problem.batch)))
        problem.solve(problem.parts)  # also for its checks
        if isinstance(structure, Finite):
            solutions = structure.vertices
        else:
            assert isinstance(structure, Pool)
            solutions = structure.solutions.flatten(1)
            if not len(solutions):
                if flat.numel():
                    raise ValueError("the pool knows no solutions, and keeps none in eval(); pool.add(solutions) first")
                solutions = flat.new_zeros(1, flat.shape[-1])
        return cls(problem, flat, solutions.to(flat))

    def values(self, weights: Tensor) -> Tensor:
        """``<weights, y>`` of every solution y, (B..., N), for weights (B..., E)."""
        return torch.einsum("...e,...ne->...n", weights, self.solutions)

    def flat(self, tensor: Tensor) -> Tensor:
        """A tensor that broadcasts to the scores, (B..., E)."""
        return tensor.to(self.scores.dtype).expand_as(self.problem.parts[0]).flatten(len(self.problem.batch))

    def predicted(self) -> Tensor:
        """The known solution with the largest score, (B..., *E)."""
        best = self.values(self.scores.detach()).argmax(-1, keepdim=True).unsqueeze(-1)
        rows = self.solutions.expand(*best.shape[:-2], *self.solutions.shape[-2:])
        shape = self.problem.parts[0].shape
        return rows.take_along_dim(best, -2).reshape(shape).to(self.problem.parts[0].dtype)
