"""Training an embedding by a neighbour loss, in batches in which every sample is a query of all others."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from directloss.neighbors.loss import NeighborLoss


def train(
    module: nn.Module,
    criterion: NeighborLoss,
    samples: tuple[Tensor, Tensor, Tensor | None],
    held: tuple[Tensor, Tensor],
    generator: torch.Generator,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    patience: int,
    normalize: bool,
    verbose: bool,
) -> tuple[list[float], list[float]]:
    """Train with Adam, whose rate falls linearly to zero; return the loss and the score of every epoch.

    ``samples`` are inputs, labels and weights or None. With ``held`` samples, training stops after ``patience`` epochs
    without a better vote on them, and the module returns to its best epoch.
    """
    x, labels, weights = samples
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
    batches = max(1, min(round(len(x) / max(batch_size, 1)), len(x) // (criterion.k + 1)))
    losses: list[float] = []
    scores: list[float] = []
    best: dict[str, Tensor] = {}
    with _progress(epochs, verbose) as advance:
        for epoch in range(epochs):
            module.train()
            total = 0.0
            for index, batch in enumerate(torch.randperm(len(x), generator=generator).tensor_split(batches)):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate * (1 - (epoch + index / batches) / epochs)
                optimizer.zero_grad()
                embedded = _embed(module, x[batch], normalize)
                weight = None if weights is None else weights[batch]
                loss = criterion(embedded, labels[batch], weight=weight, generator=generator)
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
            losses.append(total / len(x))
            advance(losses[-1])
            if len(held[0]):
                scores.append(_score(module, criterion.k, x, labels, held, normalize))
                if scores[-1] >= max(scores):
                    best = copy.deepcopy(module.state_dict())
                if len(scores) - scores.index(max(scores)) > patience:
                    break
    if best:
        module.load_state_dict(best)
    return losses, scores


def _embed(module: nn.Module, x: Tensor, normalize: bool) -> Tensor:
    embedded: Tensor = module(x)
    return nn.functional.normalize(embedded) if normalize else embedded


@torch.no_grad()
def _score(module: nn.Module, k: int, x: Tensor, labels: Tensor, held: tuple[Tensor, Tensor], normalize: bool) -> float:
    """The share of the held samples that a majority of their k nearest labels rightly."""
    module.eval()
    bank = torch.cat([_embed(module, part, normalize) for part in x.split(1024)])
    votes = [
        labels[torch.cdist(_embed(module, part, normalize), bank).topk(k, largest=False).indices]
        for part in held[0].split(256)
    ]
    return (torch.cat(votes).mode(1).values == held[1]).float().mean().item()


@contextmanager
def _progress(epochs: int, visible: bool) -> Iterator[Callable[[float], None]]:
    """A bar over the epochs, with the last one's loss."""
    if not visible:
        yield lambda loss: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("fit", total=epochs)
        yield lambda loss: progress.update(task, advance=1, description=f"fit, wrong neighbours {100 * loss:.1f} %")
