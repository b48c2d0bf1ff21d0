"""Milliseconds for soft ranks, forward and backward: ours against the same projection written plainly with SciPy.

    python benchmarks/soft_rank.py [--size 1000] [--batch 128] [--rounds 30] [--threads 1] [--cpu-time]
                                   [--regularization 0.001,0.01,1]

*plain torch*: an autograd function that sorts with torch, runs ``scipy.optimize.isotonic_regression`` row by row and
averages the gradient over its blocks with NumPy, row by row. *plain NumPy*: the same, sorted by NumPy, which is faster.
All in one process and in turns; the best round of each counts. Ratios are theirs over ours. Small regularisations
make many blocks, and large ones few.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import isotonic_regression

import directloss as dl
from directloss.lab.provenance import code_version, machine


def plain(order_of: Callable[[torch.Tensor], np.ndarray]) -> Callable[[torch.Tensor, float], torch.Tensor]:
    """Soft ranks by SciPy, with this way to sort."""

    class Rank(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: torch.Tensor, regularization: float) -> torch.Tensor:
            z = values.detach() / regularization
            order, array = order_of(z), z.numpy()
            falling = np.take_along_axis(array, order, -1)
            rho = np.arange(array.shape[-1], 0, -1)
            ranks, ctx.blocks = np.empty_like(array), []
            for row, s in enumerate(falling):
                found = isotonic_regression(s - rho, increasing=False)
                ranks[row, order[row]] = s - found.x
                ctx.blocks.append(found.blocks)
            ctx.order, ctx.regularization = order, regularization
            return torch.from_numpy(ranks)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
            array = grad.numpy()
            result = np.empty_like(array)
            for row, (order, blocks) in enumerate(zip(ctx.order, ctx.blocks, strict=True)):
                sizes = np.diff(blocks)
                g = array[row, order]
                result[row, order] = g - np.repeat(np.add.reduceat(g, blocks[:-1]) / sizes, sizes)
            return torch.from_numpy(result) / ctx.regularization, None

    return lambda values, regularization: Rank.apply(values, regularization)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--regularization", default="0.001,0.01,1")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time: for a machine that is busy")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    dl.set_num_threads(options.threads)
    print(
        f"commit {code_version()}, {machine()}, {options.threads} threads, best of {options.rounds} rounds"
        + (", processor time" if options.cpu_time else "")
    )
    rules: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
        "ours": dl.soft_rank,
        "plain torch": plain(lambda z: z.sort(-1, descending=True).indices.numpy()),
        "plain NumPy": plain(lambda z: np.argsort(-z.numpy(), -1)),
    }
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(options.batch, options.size, generator=generator)
    direction = torch.randn(options.batch, options.size, generator=generator)
    for regularization in map(float, options.regularization.split(",")):
        best = dict.fromkeys(rules, float("inf"))
        gradients = {}
        for _ in range(options.rounds):
            for name, rule in rules.items():
                leaf = values.clone().requires_grad_()
                begin = clock()
                rule(leaf, regularization).backward(direction)
                best[name] = min(best[name], clock() - begin)
                gradients[name] = leaf.grad
        for name in rules:
            torch.testing.assert_close(gradients[name], gradients["ours"], rtol=1e-3, atol=1e-3 / regularization)
        line = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in best.items())
        ratios = ", ".join(f"{name} / ours {seconds / best['ours']:.1f}" for name, seconds in best.items())
        print(
            f"n = {options.size}, batch {options.batch}, regularization {regularization:g}: {line}; {ratios}",
            flush=True,
        )


if __name__ == "__main__":
    main()
