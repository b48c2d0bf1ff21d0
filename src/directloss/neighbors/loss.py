"""The share of an item's k nearest neighbours that carry another label, as a loss of the embeddings."""

import torch
from torch import Tensor, nn

from directloss import costs
from directloss.losses.criterion import DirectLoss
from directloss.losses.direct import Sides
from directloss.losses.epsilon import AdaptiveEpsilon
from directloss.neighbors.distance import check_embeddings, negative_distance, without_diagonal
from directloss.noise import Gumbel, Noise
from directloss.structures.subset import Subset


class NeighborLoss(nn.Module):
    """How many of the k nearest neighbours carry another label, differentiable in the embeddings.

    Called with a batch alone, every item is a query and the others are its candidates.

    Args:
        k: neighbours that are counted.
        epsilon: how far a wrong neighbour is moved, summed over the k: each by ``epsilon / k`` in distance. A number,
            or ``AdaptiveEpsilon``.
        sides: "both" keeps pushing until right and wrong neighbours are ``2 * epsilon / k`` apart; "one" is the
            paper's rule.
        noise, samples: as for ``DirectLoss``; without a ``scale`` there is no noise.

    Example:
        >>> import torch, directloss as dl
        >>> criterion = dl.NeighborLoss(k=2)
        >>> embeddings = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], requires_grad=True)
        >>> criterion(embeddings, torch.tensor([0, 0, 0, 1, 1, 1]))
        tensor(0., grad_fn=<MeanBackward0>)
    """

    def __init__(
        self,
        k: int,
        *,
        epsilon: float | AdaptiveEpsilon | None = None,
        sides: Sides = "both",
        noise: Noise = Gumbel(),
        samples: int = 1,
    ):
        super().__init__()
        self.k = k
        self.direct = DirectLoss(
            Subset(k), epsilon=float(k) if epsilon is None else epsilon, sides=sides, noise=noise, samples=samples
        )

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        candidates: Tensor | None = None,
        candidate_labels: Tensor | None = None,
        scale: float | Tensor = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The mean over the queries.

        Args:
            embeddings: of the queries, (Q, D).
            labels: theirs, (Q,).
            candidates, candidate_labels: (N, D) and (N,); without them, the queries themselves.
            scale: of the noise: one number, or one for each query (Q,).
            generator: the only source of randomness (None: torch's default generator).
        """
        if (candidates is None) != (candidate_labels is None):
            raise ValueError("candidates and candidate_labels come together: give both or none")
        _check_labels("labels", labels, embeddings)
        alone = candidates is None or candidate_labels is None
        if candidates is None or candidate_labels is None:
            candidates, candidate_labels = embeddings, labels
        _check_labels("candidate_labels", candidate_labels, candidates)
        count = len(candidates) - alone
        if self.k > count:
            raise ValueError(f"k is {self.k}, but there are only {count} candidates; give more, or a smaller k")
        scores = negative_distance(embeddings, candidates)
        cost = costs.wrong_label(candidate_labels, labels, self.k)
        if alone:
            scores, cost = without_diagonal(scores), without_diagonal(cost)
        loss: Tensor = self.direct(scores, cost, scale=scale, generator=generator)
        return loss


def _check_labels(name: str, labels: Tensor, embeddings: Tensor) -> None:
    check_embeddings("embeddings" if name == "labels" else "candidates", embeddings)
    if not isinstance(labels, Tensor) or labels.shape != embeddings.shape[:1]:
        got = f"shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"{name}: got {got} for {len(embeddings)} embeddings, expected one label for each")
