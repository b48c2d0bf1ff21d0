"""Task losses as linear costs: ``loss(y) = const + <cost, y>`` for every structure y.

Each function returns the cost, shaped like the scores, and names its constant, which no maximiser depends on.
In a matching, i is the row (the input) and j the column (the position).
"""

from typing import Literal

import torch
from torch import Tensor


def hamming(target: Tensor) -> Tensor:
    """The number of entries in which y differs from ``target`` (..., *E): cost = 1 - 2 target, const = sum(target)."""
    return 1 - 2 * (target if target.is_floating_point() else target.to(torch.get_default_dtype()))


def squared_error(values: Tensor, targets: Tensor) -> Tensor:
    """``sum_j (x_i(j) - s_j)^2`` of a matching that puts x_i at position j: cost_ij = (x_i - s_j)^2, const = 0.

    ``values`` is (..., n) and ``targets`` (..., m); to sort, the targets are the sorted values.
    """
    return (values.unsqueeze(-1) - targets.unsqueeze(-2)) ** 2


def weighted_hamming(values: Tensor, target: Tensor, by: Literal["row", "column"] = "row") -> Tensor:
    """The Hamming loss weighted with squared values: cost_ij = w_ij (1 - 2 target_ij), const = sum(w * target).

    ``by="row"`` is the paper's form, w_ij = x_i^2 (the element's own value). ``by="column"`` is its released program's,
    w_ij = x_j^2 (the value that happens to stand at index j). Neither is the quadratic loss it was derived from
    (``squared_error`` is), but both have its minimiser.
    """
    if by not in ("row", "column"):
        raise ValueError(f"by is {by!r}, expected 'row' or 'column'")
    weights = values.unsqueeze(-1 if by == "row" else -2) ** 2
    return weights * hamming(target)


def rank_distance(values: Tensor, descending: bool = False, power: float = 1.0) -> Tensor:
    """``sum_i |rank(x_i) - j_i|^power`` of a matching that puts x_i at j_i: cost_ij = |rank(x_i) - j|^power."""
    ranks = values.argsort(dim=-1, descending=descending, stable=True).argsort(-1)
    positions = torch.arange(values.shape[-1], device=values.device)
    return (ranks.unsqueeze(-1) - positions).abs().to(values.dtype).pow(power)


def wrong_label(labels: Tensor, query_labels: Tensor, k: int) -> Tensor:
    """The share of the k selected that carry another label than the query: cost_i = [label_i != query] / k, const = 0.

    ``labels`` is (..., n) or (n,), ``query_labels`` (...); the cost is (..., n).
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return (labels != query_labels.unsqueeze(-1)).to(torch.get_default_dtype()) / k


def label_distance(distances: Tensor, labels: Tensor, query_labels: Tensor) -> Tensor:
    """The paper's nearest-neighbour loss, ``-sum of the distances of selected right-label entries``; const = 0.

    cost_i = -d_i [label_i == query], with the embedding distances ``distances`` (..., n) taken as constants. It is
    never positive and has no meaning as an error, but with -1 < epsilon < 0 it makes right-label entries look nearer.
    """
    return -distances.detach() * (labels == query_labels.unsqueeze(-1))


class F1:
    """One less the F1 measure of a multi-label decision (``dl.Bits``) against ``target`` (..., n): not linear in y.

    Called with structures (..., n) it gives their losses (...); ``augmented`` is its exact loss-augmented maximiser,
    without which a rule linearises it at y. Where nothing is right and nothing is chosen, the loss is 0.

    Example:
        >>> import torch, directloss as dl
        >>> loss = dl.costs.F1(torch.tensor([[1.0, 1.0, 0.0]]))
        >>> round(loss(torch.tensor([[1.0, 0.0, 0.0]])).item(), 4)
        0.3333
        >>> scores = torch.tensor([[1.0, -0.2, 0.5]], requires_grad=True)
        >>> dl.direct_loss(scores, loss, dl.Bits(), epsilon=-1.0, augmented=loss.augmented).backward()
    """

    def __init__(self, target: Tensor):
        self.target = target.bool()

    def __call__(self, y: Tensor) -> Tensor:
        return self._loss((y * self.target).sum(-1), (y * ~self.target).sum(-1))

    def _loss(self, right: Tensor, wrong: Tensor) -> Tensor:
        total = right + wrong + self.target.sum(-1)
        return torch.where(total > 0, 1 - 2 * right / total.clamp_min(1), 0.0)

    @torch.no_grad()
    def augmented(self, theta: Tensor, epsilon: float | Tensor) -> Tensor:
        """The maximiser of ``<theta, y> + epsilon * loss(y)``, in O(n^2) for each instance.

        The loss depends only on how many right and how many wrong labels are chosen, and of each kind the best ones are
        those with the largest scores: every pair of numbers is tried.
        """
        n, target = theta.shape[-1], self.target.expand(theta.shape)
        chosen, orders = [], []
        for kind in (target, ~target):
            scores, order = theta.masked_fill(~kind, -torch.inf).sort(-1, descending=True)
            sums = torch.nn.functional.pad(scores.double().cumsum(-1), (1, 0))  # -inf where the kind has no more
            chosen.append(sums)
            orders.append(order)
        counts = torch.arange(n + 1, device=theta.device, dtype=torch.float64)
        size = target.sum(-1)[..., None, None]
        total = counts[:, None] + counts + size
        losses = torch.where(total > 0, 1 - 2 * counts[:, None] / total.clamp_min(1), 0.0)
        factor = torch.as_tensor(epsilon, dtype=torch.float64, device=theta.device)[..., None, None]
        values = chosen[0].unsqueeze(-1) + chosen[1].unsqueeze(-2) + factor * losses
        best = values.flatten(-2).argmax(-1, keepdim=True)
        numbers = (best.div(n + 1, rounding_mode="floor"), best % (n + 1))
        y = torch.zeros_like(theta)
        for order, number in zip(orders, numbers, strict=True):
            y.scatter_add_(-1, order, (torch.arange(n, device=theta.device) < number).to(theta.dtype))
        return y
