"""How good predictions are, in the measures of each field, for a whole batch. None of them has a gradient.

Rankings: ``ndcg``, ``average_precision``. Trees: ``attachment``. Sequences: ``position_accuracy``, ``exact_match``.
"""

from typing import Literal

import torch
from torch import Tensor

from directloss.parts import broadcasts


def ndcg(
    scores: Tensor,
    grades: Tensor,
    k: int | None = None,
    *,
    mask: Tensor | None = None,
    gain: Literal["exponential", "linear"] = "exponential",
    without: float = 1.0,
) -> Tensor:
    """Normalised discounted cumulative gain of the ranking by falling scores, (B...).

    ``DCG = sum_r gain(grade at rank r) / log2(r + 1)`` over the first k ranks (None: all), divided by the largest that
    is possible. The gain is ``2^grade - 1``, or the grade itself. Of tied items the first comes first.

    Args:
        scores: (B..., n).
        grades: how relevant each item is, (B..., n), at least 0.
        k: how many ranks count.
        mask: (B..., n), True where there is an item.
        gain: "exponential" is LightGBM's and most papers', "linear" scikit-learn's.
        without: the value where nothing is relevant: LightGBM's is 1, scikit-learn's 0.

    Example:
        >>> import torch, directloss as dl
        >>> dl.metrics.ndcg(torch.tensor([[0.3, 0.9, 0.1]]), torch.tensor([[1.0, 0.0, 1.0]]), gain="linear")
        tensor([0.6934])
    """
    if gain not in ("exponential", "linear"):
        raise ValueError(f"gain is {gain!r}, expected 'exponential' or 'linear'")
    if k is not None and k < 1:
        raise ValueError(f"k is {k}, expected at least 1, or None for all ranks")
    keys, grades = _ranked(scores, grades, mask)
    gains = torch.exp2(grades) - 1 if gain == "exponential" else grades
    n = gains.shape[-1]
    discounts = 1 / torch.log2(torch.arange(2, n + 2, device=gains.device, dtype=gains.dtype))
    if k is not None:
        discounts[k:] = 0
    order = keys.argsort(dim=-1, descending=True, stable=True)
    found = (gains.take_along_dim(order, -1) * discounts).sum(-1)
    ideal = (gains.sort(-1, descending=True).values * discounts).sum(-1)
    return torch.where(ideal > 0, found / ideal.clamp_min(torch.finfo(ideal.dtype).tiny), without)


def average_precision(scores: Tensor, relevant: Tensor, *, mask: Tensor | None = None, without: float = 0.0) -> Tensor:
    """The mean, over relevant items, of the precision at their rank, (B...); its mean over queries is MAP.

    Args:
        scores: (B..., n).
        relevant: (B..., n), True or positive where an item is relevant.
        mask: (B..., n), True where there is an item.
        without: the value where nothing is relevant.

    Example:
        >>> import torch, directloss as dl
        >>> dl.metrics.average_precision(torch.tensor([[0.3, 0.9, 0.1]]), torch.tensor([[True, False, True]]))
        tensor([0.5833])
    """
    keys, grades = _ranked(scores, relevant, mask)
    order = keys.argsort(dim=-1, descending=True, stable=True)
    right = (grades > 0).to(keys.dtype).take_along_dim(order, -1)
    ranks = torch.arange(1, right.shape[-1] + 1, device=right.device)
    total = right.sum(-1)
    return torch.where(total > 0, (right * right.cumsum(-1) / ranks).sum(-1) / total.clamp_min(1), without)


def _ranked(scores: Tensor, grades: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores that put what the mask excludes last, and grades that are 0 there."""
    for name, tensor in (("grades", grades), ("mask", mask)):
        if tensor is not None and not broadcasts(tensor.shape, scores.shape):
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}, expected what broadcasts to the scores {tuple(scores.shape)}"
            )
    keys = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    grades = grades.detach().to(keys).expand_as(keys)
    if (grades < 0).any():
        raise ValueError(f"grades go down to {grades.min():g}, expected at least 0")
    if mask is None:
        return keys, grades
    return keys.masked_fill(~mask, -torch.inf), grades.masked_fill(~mask, 0)


def position_accuracy(y: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """The share of positions whose label is right, over the whole batch.

    Args:
        y, target: structures of ``dl.Chain``, (B..., n, L): one-hot at each position, 0 beyond a sequence's length.
        mask: (B..., n), True where a position counts (None: all that the target labels).

    Example:
        >>> import torch, directloss as dl
        >>> target = torch.eye(3)[torch.tensor([[0, 2, 1], [1, 1, 0]])]
        >>> y = torch.eye(3)[torch.tensor([[0, 2, 2], [1, 1, 0]])]
        >>> target[1, 2] = y[1, 2] = 0  # the second sequence has two positions
        >>> dl.metrics.position_accuracy(y, target), dl.metrics.exact_match(y, target)
        (tensor(0.8000), tensor(0.5000))
    """
    right, labelled = _positions(y, target, mask)
    return right.sum() / labelled.sum()


def attachment(y: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Unlabelled attachment score (UAS): the share of words whose head is right, over the whole batch.

    Args:
        y, target: structures of ``dl.Arborescence``, (B..., n, n + 1): row i has the head of word i + 1.
        mask: (B..., n), True where a word counts (to leave out punctuation, say).
    """
    return position_accuracy(y, target, mask=mask)


def exact_match(y: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """The share of sequences or trees that are right in every position that counts; one without positions is right.

    Args:
        y, target, mask: as for ``position_accuracy`` and ``attachment``.
    """
    right, labelled = _positions(y, target, mask)
    return (right == labelled).all(-1).to(torch.get_default_dtype()).mean()


def _positions(y: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which positions are right, and which are labelled, (B..., n), both as numbers."""
    if y.shape != target.shape or y.dim() < 2:
        raise ValueError(
            f"y has shape {tuple(y.shape)} and the target {tuple(target.shape)}; expected structures (B..., n, L) alike"
        )
    chosen, labelled = y > 0.5, target > 0.5
    right, there = (chosen & labelled).any(-1), labelled.any(-1)
    if mask is not None:
        right, there = right & mask, there & mask
    return right.to(torch.get_default_dtype()), there.to(torch.get_default_dtype())
