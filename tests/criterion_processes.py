"""Started by two processes, or called in one: steps of a criterion that finds its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, distributed

import directloss as dl


@dataclass(frozen=True)
class Ramp(dl.Noise):
    """The same draws for every instance, however many processes share them."""

    standard_variance: ClassVar[float] = 1.0

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return torch.sin(3 * torch.arange(shape[-1], dtype=options["dtype"])).expand(shape).clone()


def steps(instances: slice) -> Tensor:
    """The state of a criterion after ten steps on some of eight instances."""
    scores, cost = (torch.randn(8, 6, generator=torch.Generator().manual_seed(seed)).double() for seed in (0, 1))
    criterion = dl.DirectLoss(dl.Subset(2), noise=Ramp())
    for _ in range(10):
        criterion(scores[instances].requires_grad_(), cost[instances])
    return criterion.found.value


def run(rank: int, splits: Sequence[Sequence[slice]], meeting: str, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=len(splits[0]))
    torch.save([steps(shares[rank]) for shares in splits], f"{folder}/{rank}.pt")
    distributed.destroy_process_group()
