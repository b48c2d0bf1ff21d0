"""Scores of neighbours: the negative distances between embeddings."""

from typing import Any

import torch
from torch import Tensor

# Where a larger share of the pairs has a gradient, two matrix products are cheaper than gathering the pairs.
_SPARSE = 0.02


class _NegativeDistance(torch.autograd.Function):
    """``-||q - c||`` for all pairs. A direct loss gives few pairs a gradient, and only those are visited."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        # cdist computes large batches by products, which lose digits where all embeddings are far from zero.
        center = candidates.mean(0)
        queries, candidates = queries - center, candidates - center
        distance = torch.cdist(queries, candidates)
        ctx.save_for_backward(queries, candidates, distance)
        return -distance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        queries, candidates, distance = ctx.saved_tensors
        # d(-||q - c||) / dq = -(q - c) / ||q - c||, and nothing where they coincide.
        weight = torch.where(distance > 0, -grad / distance, 0.0)
        if torch.count_nonzero(weight) > _SPARSE * weight.numel():
            to_queries = weight.sum(1, keepdim=True) * queries - weight @ candidates
            to_candidates = weight.sum(0).unsqueeze(1) * candidates - weight.mT @ queries
            return to_queries, to_candidates
        row, column = weight.nonzero(as_tuple=True)
        pulls = weight[row, column].unsqueeze(1) * (queries[row] - candidates[column])
        return (
            torch.zeros_like(queries).index_add_(0, row, pulls),
            torch.zeros_like(candidates).index_add_(0, column, pulls, alpha=-1),
        )


def negative_distance(queries: Tensor, candidates: Tensor) -> Tensor:
    """Embeddings (Q, D) and (N, D) -> scores (Q, N), the negative Euclidean distances: the nearest has the largest."""
    check_embeddings("queries", queries)
    check_embeddings("candidates", candidates)
    if queries.shape[1] != candidates.shape[1]:
        raise ValueError(
            f"queries have {queries.shape[1]} dimensions and candidates {candidates.shape[1]}; they must agree"
        )
    scores: Tensor = _NegativeDistance.apply(queries, candidates)
    return scores


def check_embeddings(name: str, embeddings: Tensor) -> None:
    """Raise unless it is a matrix of floating-point numbers."""
    if not isinstance(embeddings, Tensor) or embeddings.dim() != 2 or not embeddings.is_floating_point():
        found = isinstance(embeddings, Tensor)
        got = f"{embeddings.dtype} {tuple(embeddings.shape)}" if found else type(embeddings).__name__
        raise ValueError(f"{name}: got {got}, expected a floating-point tensor of embeddings (N, D)")


def without_diagonal(square: Tensor) -> Tensor:
    """(n, n) -> (n, n - 1): each row without its own entry. Differentiable."""
    n = len(square)
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def without_own(scores: Tensor, first: int) -> Tensor:
    """(Q, N) without the entries (i, first + i): a query is not its own neighbour. Differentiable."""
    if scores.shape[0] == scores.shape[1]:
        return without_diagonal(scores)
    rows = torch.arange(len(scores), device=scores.device).unsqueeze(1)
    others = torch.arange(scores.shape[1] - 1, device=scores.device)
    return scores.gather(1, others + (others >= first + rows))
