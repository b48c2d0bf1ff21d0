"""Label sequences against torch's own operations over the whole batch."""

from typing import Any

import torch
from torch import Tensor

import directloss as dl


def viterbi(unary: Tensor, transitions: Tensor) -> Tensor:
    """Labels (B, n), one vectorised step for each position."""
    best, back = unary[:, 0], []
    for t in range(1, unary.shape[1]):
        values, indices = (best.unsqueeze(-1) + transitions).max(1)
        back.append(indices)
        best = values + unary[:, t]
    labels = [best.argmax(-1)]
    for indices in reversed(back):
        labels.append(indices.gather(1, labels[-1].unsqueeze(1)).squeeze(1))
    return torch.stack(labels[::-1], 1)


def cases() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    unary, transitions = torch.randn(64, 30, 26, generator=generator), torch.randn(26, 26, generator=generator)

    def check(ours: Any, theirs: Any) -> None:
        assert torch.equal(ours.argmax(-1), theirs)

    return [
        {
            "work": "Chain B = 64, n = 30, L = 26",
            "against": "torch, vectorised Viterbi",
            "target": 5,
            "ours": lambda: dl.Chain().solve((unary, transitions)),
            "theirs": lambda: viterbi(unary, transitions),
            "check": check,
        }
    ]
