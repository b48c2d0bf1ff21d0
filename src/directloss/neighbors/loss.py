"""The share of an item's k nearest neighbours that carry another label, as a loss of the embeddings."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from directloss import costs
from directloss.losses.criterion import DirectLoss
from directloss.losses.direct import Sides
from directloss.losses.growth import GrowingEpsilon
from directloss.neighbors.distance import check_embeddings, negative_distance, without_own
from directloss.noise import Noise
from directloss.structures.subset import Subset


class NeighborLoss(nn.Module):
    """How many of the k nearest neighbours carry another label, differentiable in the embeddings.

    Called with a batch alone, every item is a query and the others are its candidates.

    Args:
        k: neighbours that are counted.
        epsilon: None finds one for each side, as ``DirectLoss`` does. A number, or ``GrowingEpsilon``: how far a wrong
            neighbour is moved, summed over the k: each by ``epsilon / k`` in distance.
        sides: with an epsilon of yours, "both" (the default) keeps pushing until right and wrong neighbours are
            ``2 * epsilon / k`` apart; "one" is the paper's rule.
        noise, samples: as for ``DirectLoss``; without a ``scale`` there is no noise.
        cost: "wrong-label", the share of wrong labels; or "label-distance", the paper's, in which the distance counts.
        rule: another loss, called as ``rule(scores, cost, structure, generator=generator)``: a relaxation's, or your
            own. Epsilon, sides, noise, samples and scale are the direct loss's and mean nothing to it.

    Example:
        >>> import torch, directloss as dl
        >>> criterion = dl.NeighborLoss(k=2)
        >>> embeddings = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], requires_grad=True)
        >>> criterion(embeddings, torch.tensor([0, 0, 0, 1, 1, 1])).item()
        0.0
    """

    def __init__(
        self,
        k: int,
        *,
        epsilon: float | GrowingEpsilon | None = None,
        sides: Sides | None = None,
        noise: Noise | None = None,
        samples: int | None = None,
        cost: Literal["wrong-label", "label-distance"] = "wrong-label",
        rule: Callable[..., Tensor] | None = None,
    ):
        super().__init__()
        self.k, self.cost, self.rule = k, cost, rule
        self.direct = DirectLoss(
            Subset(k),
            epsilon=epsilon,
            sides=sides if epsilon is None else sides or "both",
            scale=0.0,
            noise=noise,
            samples=samples,
            reduction="none",
        )

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        candidates: Tensor | None = None,
        candidate_labels: Tensor | None = None,
        scale: float | Tensor | None = None,
        generator: torch.Generator | None = None,
        own: int | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """The mean over the queries.

        Args:
            embeddings: of the queries, (Q, D).
            labels: theirs, (Q,).
            candidates, candidate_labels: (N, D) and (N,); without them, the queries themselves.
            scale: of the noise: one number, or one for each query (Q,); None: no noise.
            generator: the only source of randomness (None: torch's default generator).
            own: the place of the first query among the candidates, if they are there too: none is its own neighbour.
            weight: of each query in the mean (Q,); without it, all alike.
        """
        if (candidates is None) != (candidate_labels is None):
            raise ValueError("candidates and candidate_labels come together: give both or none")
        _check_labels("labels", labels, embeddings)
        if candidates is None or candidate_labels is None:
            candidates, candidate_labels, own = embeddings, labels, 0
        _check_labels("candidate_labels", candidate_labels, candidates)
        count = len(candidates) - (own is not None)
        if self.k > count:
            raise ValueError(f"k is {self.k}, but there are only {count} candidates; give more, or a smaller k")
        scores = negative_distance(embeddings, candidates)
        if self.cost == "label-distance":
            cost = costs.label_distance(-scores, candidate_labels, labels)
        else:
            cost = costs.wrong_label(candidate_labels, labels, self.k)
        if own is not None:
            scores, cost = without_own(scores, own), without_own(cost, own)
        if self.rule is None:
            loss: Tensor = self.direct(scores, cost, scale=scale, generator=generator)
        else:
            loss = self.rule(scores, cost, self.direct.structure, generator=generator)
        return loss.mean() if weight is None else (weight * loss).sum() / weight.sum()


def _check_labels(name: str, labels: Tensor, embeddings: Tensor) -> None:
    check_embeddings("embeddings" if name == "labels" else "candidates", embeddings)
    if not isinstance(labels, Tensor) or labels.shape != embeddings.shape[:1]:
        got = f"shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"{name}: got {got} for {len(embeddings)} embeddings, expected one label for each")
