"""What a call of the direct loss costs beyond its solves, against cross-entropy on the same scores.

    python benchmarks/overhead.py

One process, one thread, batch 32, forward and backward. Prints microseconds and ratios, and the commit.
"""

import argparse
import subprocess
import time
from collections.abc import Callable

import torch

import directloss as dl

BATCH, EPSILON = 32, 1.0


def best(call: Callable[[], object], repetitions: int) -> float:
    """Microseconds of one call, the best of seven rounds."""
    for _ in range(repetitions // 10):
        call()
    rounds = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        rounds.append((time.perf_counter() - start) / repetitions)
    return 1e6 * min(rounds)


def training(loss: Callable[[torch.Tensor], torch.Tensor], scores: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        scores.grad = None
        loss(scores).backward()

    return call


def largest(scores: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000, help="calls in each of seven rounds")
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"batch {BATCH}, one thread, microseconds forward and backward, commit {commit or 'unknown'}")
    print(f"{'structure':<14}{'scale':>6}{'direct':>9}{'reference':>11}{'ratio':>8}")
    generator = torch.Generator().manual_seed(0)
    for name, structure, n in (
        ("Choice 10", dl.Choice(), 10),
        ("Choice 40", dl.Choice(), 40),
        ("Subset 5/10", dl.Subset(5), 10),
        ("Subset 5/40", dl.Subset(5), 40),
        ("custom 10", dl.custom(largest), 10),
    ):
        scores = torch.randn(BATCH, n, generator=generator).requires_grad_()
        cost, labels = torch.rand(BATCH, n, generator=generator), torch.randint(n, (BATCH,), generator=generator)
        reference = best(training(lambda s: torch.nn.functional.cross_entropy(s, labels), scores), repetitions)
        for scale in (0.0, 1.0):
            took = best(
                training(lambda s: dl.direct_loss(s, cost, structure, epsilon=EPSILON, scale=scale), scores),
                repetitions,
            )
            if name.startswith("custom"):
                solver = best(lambda: largest(scores.detach().expand(2, -1, -1)), repetitions)
                print(f"{name:<14}{scale:>6g}{took:>9.1f}{solver:>11.1f}{took - solver:>8.1f} beyond its solver")
            else:
                print(f"{name:<14}{scale:>6g}{took:>9.1f}{reference:>11.1f}{took / reference:>8.2f}")
    scores = torch.randn(BATCH, 10, 10, generator=generator).requires_grad_()
    cost = torch.rand(BATCH, 10, 10, generator=generator)
    matching = dl.Matching()
    reference = best(lambda: matching.solve_along(scores.detach(), cost, (0.0, EPSILON)), repetitions)
    for scale in (0.0, 1.0):
        took = best(
            training(lambda s: dl.direct_loss(s, cost, matching, epsilon=EPSILON, scale=scale), scores), repetitions
        )
        print(f"{'Matching 10':<14}{scale:>6g}{took:>9.1f}{reference:>11.1f}{took / reference:>8.2f}")


if __name__ == "__main__":
    main()
