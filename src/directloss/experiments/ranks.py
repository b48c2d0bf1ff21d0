"""Training in several processes: what a rank does for all, and what it gets from them."""

import atexit
import gc
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _Gather(torch.autograd.Function):
    """Every rank's rows, (R * n, ...). Backward, a rank's rows get the sum of what all ranks computed for them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        ctx.count = len(rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        total: Tensor = grads[0].contiguous()
        dist.all_reduce(total)
        first = dist.get_rank() * ctx.count
        return total[first : first + ctx.count]


def _leave() -> None:
    """End the group's threads, which abort the process if they outlive the interpreter; lost modules may hold them."""
    gc.collect()
    dist.destroy_process_group()


@dataclass(frozen=True)
class Ranks:
    """This process among ``count``; alone by default."""

    index: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> "Ranks":
        """Meet the others that torchrun started, if it did."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=timedelta(hours=2))
            atexit.register(_leave)
        return cls(dist.get_rank(), count)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with gradients averaged over ranks in its backward pass."""
        return module if self.count == 1 else nn.parallel.DistributedDataParallel(module)

    def share(self, index: Tensor) -> Tensor:
        """This rank's part of a batch's indices, as many for each rank."""
        size = len(index) // self.count
        return index[self.index * size : (self.index + 1) * size]

    def gather(self, rows: Tensor) -> Tensor:
        gathered: Tensor = rows if self.count == 1 else _Gather.apply(rows)
        return gathered

    def gather_labels(self, labels: Tensor) -> Tensor:
        if self.count == 1:
            return labels
        parts = [torch.empty_like(labels) for _ in range(self.count)]
        dist.all_gather(parts, labels)
        return torch.cat(parts)

    def own(self, generator: torch.Generator) -> torch.Generator:
        """This rank's generator for a step, drawn from the one that is alike on all of them."""
        if self.count == 1:
            return generator
        seed = torch.randint(1 << 62, (), generator=generator).item()
        return torch.Generator().manual_seed(int(seed) + self.index)

    def agree(self, value: Tensor) -> None:
        """Set a tensor to what the first rank has."""
        if self.count > 1:
            dist.broadcast(value, 0)

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()
