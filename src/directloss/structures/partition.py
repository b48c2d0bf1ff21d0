"""Sums over all structures: ``log Z = log sum_y exp(<scores, y>)``, in log space and differentiable to any order.

Structures that have such a sum set ``summable`` and implement ``_log_partition``; what several of them need is here.
An entry that may not be used has the score ``never(dtype)``, far below any other but finite: beside an infinite one a
gradient would be NaN.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from directloss.parts import Scores, as_parts
from directloss.structures.checks import largest_magnitude
from directloss.transforms import inside_transform

if TYPE_CHECKING:
    from directloss.structures.base import Structure

# The structures with a partition function; a test holds it.
SUMMABLE = ("Arborescence", "Bits", "Chain", "Choice", "Finite", "SpanningTree", "Subset")
# A sum of so many scores that may not be used is still finite.
_TERMS = 2.0**20


def check_summable(rule: str, structure: "Structure") -> None:
    """Raise TypeError, naming what fits, unless the structure has a partition function."""
    if not structure.summable:
        names = f"{', '.join(SUMMABLE[:-1])} and {SUMMABLE[-1]}"
        raise TypeError(
            f"{rule} does not relax {structure!r}, whose structures have no sum in closed form; it takes {names}"
        )


def log_partition(structure: "Structure", scores: Scores) -> Tensor:
    """``structure.log_partition(scores)``: the checks, and the dtype to compute in."""
    check_summable("log_partition", structure)
    parts = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(parts)
    first = parts[0]
    dtype = torch.promote_types(first.dtype, torch.float32)
    if not inside_transform():
        reach = max(largest_magnitude(part.detach(), "scores") for part in parts)
        if reach > -never(dtype) / _TERMS:  # scores must stay far above those that may not be used
            dtype = torch.float64
    if not entries[0].numel():  # one structure: nothing
        return first.square().sum(tuple(range(len(batch), first.dim())))
    found = structure._log_partition(tuple(part.to(dtype) for part in parts))
    return found.expand(batch).to(first.dtype)


def never(dtype: torch.dtype) -> float:
    """The score of what may not be used."""
    return torch.finfo(dtype).min / _TERMS


def only(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores where the mask is True, and elsewhere the score of what may not be used; both broadcast."""
    return scores if mask is None else torch.where(mask.to(scores.device), scores, never(scores.dtype))


def log_sum_of_subsets(scores: Tensor, most: int) -> Tensor:
    """Logarithms of the elementary symmetric polynomials of ``exp(scores)``, (..., n) -> (..., most + 1).

    Entry k sums over all subsets of k. Each score is a polynomial ``1 + exp(score) x``; they are multiplied in pairs,
    then pairs of pairs, so that n scores take log n steps.
    """

    def pad(tensor: Tensor, count: int) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, count), value=never(scores.dtype))

    polynomials = torch.stack([torch.zeros_like(scores), scores], -1)
    while (count := polynomials.shape[-2]) > 1:
        size = polynomials.shape[-1]
        if count % 2:
            polynomials = torch.cat([polynomials, pad(torch.zeros_like(polynomials[..., :1, :1]), size - 1)], -2)
        a, b = polynomials[..., 0::2, :], polynomials[..., 1::2, :]
        # The coefficients of a product add up along antidiagonals: padded, and cut into rows of one less, they are
        # columns.
        products = pad(a.unsqueeze(-1) + b.unsqueeze(-2), size).flatten(-2)
        columns = products[..., : size * (2 * size - 1)].unflatten(-1, (size, 2 * size - 1))
        polynomials = torch.logsumexp(columns[..., : most + 1], -2)
    found = polynomials.squeeze(-2)[..., : most + 1]
    return pad(found, most + 1 - found.shape[-1])


def log_sum_of_trees(weights: Tensor, single_root: bool = False) -> Tensor:
    """The matrix-tree theorem: the sum over all arborescences of the product of their weights, in logarithms.

    ``weights`` (..., n, n + 1) are those of the head of each of n nodes, the root first; the diagonal is not used. The
    determinant of the Laplacian is the product of the pivots of an elimination that never subtracts (Grassmann, Taksar
    and Heyman): a node v whose heads weigh p together leaves, its children going to its heads,

        w[i, j] += w[i, v] w[v, j] / p,

    so that any weights are exact in log space. With a single root p leaves the root out, but for the last node.
    """
    n = weights.shape[-2]
    itself = torch.nn.functional.pad(torch.eye(n, dtype=torch.bool, device=weights.device), (1, 0))
    weights = only(weights, ~itself)
    total = torch.zeros_like(weights[..., 0, 0])
    for v in range(n - 1, -1, -1):
        heads = weights[..., v, : v + 1]
        pivot = torch.logsumexp(heads[..., 1:] if single_root and v else heads, -1)
        total = total + pivot
        through = weights[..., :v, v + 1, None] + (heads - pivot.unsqueeze(-1)).unsqueeze(-2)
        # Not logaddexp, whose second derivative is NaN beside what may not be used.
        weights = torch.logsumexp(torch.stack([weights[..., :v, : v + 1], through]), 0)
        weights = only(weights, ~itself[:v, : v + 1])
    return total


def only_first(weights: Tensor, counts: Tensor | None) -> Tensor:
    """Weights of trees over the first ``counts`` (...) nodes: the others hang on the first, by a weight of one."""
    if counts is None:
        return weights
    n = weights.shape[-2]
    node = torch.arange(n, device=weights.device)
    inside = node < counts.to(weights.device).unsqueeze(-1)
    kept = only(weights, inside.unsqueeze(-1) & torch.nn.functional.pad(inside, (1, 0), value=True).unsqueeze(-2))
    hangs = torch.arange(n + 1, device=weights.device) == (node > 0).unsqueeze(-1)
    return kept.masked_fill(~inside.unsqueeze(-1) & hangs, 0.0)
