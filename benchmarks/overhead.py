"""What a call of the direct loss costs beyond its solves, against cross-entropy on the same scores.

    python benchmarks/overhead.py

One process, one thread, batch 32, forward and backward. Prints microseconds and ratios, and the commit.
"""

import argparse
import functools
import subprocess
import time
from collections.abc import Callable

import torch

import directloss as dl

BATCH, EPSILON = 32, 1.0


def best(*calls: Callable[[], object], blocks: int = 6, rounds: int = 60, repetitions: int = 4) -> list[float]:
    """Microseconds of each call, the best of many rounds, so short that other programs disturb only some.

    The calls take turns in blocks of rounds: long enough for each to find its own code in the caches.
    """
    taken = [[float("inf")] for _ in calls]
    for _ in range(blocks):
        for call, times in zip(calls, taken, strict=True):
            for _ in range(rounds):
                start = time.perf_counter()
                for _ in range(repetitions):
                    call()
                times.append((time.perf_counter() - start) / repetitions)
    return [1e6 * min(times) for times in taken]


def training(
    loss: Callable[..., torch.Tensor], scores: torch.Tensor, *rest: object, **options: object
) -> Callable[[], None]:
    """A forward and a backward pass of ``loss(scores, *rest, **options)``."""

    def call() -> None:
        scores.grad = None
        loss(scores, *rest, **options).backward()

    return call


def largest(scores: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"batch {BATCH}, one thread, microseconds forward and backward, commit {commit or 'unknown'}")
    print(f"{'structure':<14}{'scale':>6}{'direct':>9}{'reference':>11}{'ratio':>8}{'target':>8}")
    generator = torch.Generator().manual_seed(0)
    for name, structure, n, target in (
        ("Choice 10", dl.Choice(), 10, 4),
        ("Choice 40", dl.Choice(), 40, 4),
        ("Subset 5/10", dl.Subset(5), 10, 5),
        ("Subset 5/40", dl.Subset(5), 40, 5),
    ):
        scores = torch.randn(BATCH, n, generator=generator).requires_grad_()
        cost, labels = torch.rand(BATCH, n, generator=generator), torch.randint(n, (BATCH,), generator=generator)
        for scale in (0.0, 1.0):
            direct = training(dl.direct_loss, scores, cost, structure, epsilon=EPSILON, scale=scale)
            took, reference = best(direct, training(torch.nn.functional.cross_entropy, scores, labels))
            print(f"{name:<14}{scale:>6g}{took:>9.1f}{reference:>11.1f}{took / reference:>8.2f}{target:>8}")
    scores, cost = (torch.randn(BATCH, 10, generator=generator) for _ in range(2))
    pair, scores = scores.expand(2, BATCH, 10), scores.requires_grad_()
    for scale in (0.0, 1.0):
        direct = training(dl.direct_loss, scores, cost, dl.custom(largest), epsilon=EPSILON, scale=scale)
        took, solver = best(direct, functools.partial(largest, pair.detach()))
        print(
            f"{'custom 10':<14}{scale:>6g}{took:>9.1f}{solver:>11.1f}{took - solver:>8.1f}     150 (beyond its solver)"
        )
    scores, cost = (torch.randn(BATCH, 10, 10, generator=generator) for _ in range(2))
    plain, scores = scores.clone(), scores.requires_grad_()
    for scale in (0.0, 1.0):
        direct = training(dl.direct_loss, scores, cost, dl.Matching(), epsilon=EPSILON, scale=scale)
        took, reference = best(direct, functools.partial(dl.Matching().solve_along, plain, cost, (0.0, EPSILON)))
        print(f"{'Matching 10':<14}{scale:>6g}{took:>9.1f}{reference:>11.1f}{took / reference:>8.2f}{2:>8}")


if __name__ == "__main__":
    main()
