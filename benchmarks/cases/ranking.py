"""Rankings against the sort that they are made of."""

from typing import Any

import torch

import directloss as dl


def cases() -> list[dict[str, Any]]:
    scores = torch.randn(256, 100, generator=torch.Generator().manual_seed(0))
    values = 1 / torch.log2(torch.arange(2.0, 102.0))
    structure = dl.Ranking(values)

    def check(ours: Any, theirs: Any) -> None:
        assert torch.equal(ours.gather(-1, theirs.indices), values.expand_as(scores))

    return [
        {
            "work": "Ranking n = 100, batch 256",
            "against": "torch.sort alone",
            "target": 0.5,
            "ours": lambda: structure.solve(scores),
            "theirs": lambda: torch.sort(scores, -1, descending=True),
            "check": check,
        }
    ]
