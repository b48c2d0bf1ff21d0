"""Layers made of maximisers against what one would do without them, side by side in one process.

    python benchmarks/layers.py [--rounds 20]

`sparsemap` on 10 x 10 matchings, batch 32, against OSQP on the Birkhoff polytope (set up once, only the objective
changes), and `perturbed` with 100 samples on 20 x 20 matchings against a loop over SciPy's assignment, which draws its
noise and takes the mean as well. Both are checked before they are timed; times are the best of the rounds, with one
thread of the solvers and with two.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import osqp
import torch
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import directloss as dl
from directloss.lab.provenance import code_version, machine

N, BATCH = 10, 32
LARGE, SAMPLES, INSTANCES = 20, 100, 8


def best(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The least seconds of each call; they take turns."""
    times = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[index] = min(times[index], time.perf_counter() - start)
    return times


def birkhoff(**settings: object) -> osqp.OSQP:
    """OSQP with the polytope's constraints: rows and columns sum to one, no entry is negative."""
    rows, columns = sparse.kron(sparse.eye(N), np.ones((1, N))), sparse.kron(np.ones((1, N)), sparse.eye(N))
    constraints = sparse.vstack([rows, columns, sparse.eye(N * N)]).tocsc()
    lower, upper = np.r_[np.ones(2 * N), np.zeros(N * N)], np.r_[np.ones(2 * N), np.full(N * N, np.inf)]
    solver = osqp.OSQP()
    solver.setup(sparse.eye(N * N, format="csc"), np.zeros(N * N), constraints, lower, upper, verbose=False, **settings)
    return solver


def solve(solver: osqp.OSQP, theta: np.ndarray) -> np.ndarray:
    found = []
    for one in theta:
        solver.update(q=-one.ravel())
        found.append(solver.solve().x.reshape(N, N).copy())
    return np.stack(found)


def compare_sparsemap(rounds: int) -> None:
    exact = birkhoff(polishing=True, eps_abs=1e-8, eps_rel=1e-8, max_iter=100_000)
    loose = birkhoff()  # OSQP as it comes: 1e-3
    scores = torch.randn(BATCH, N, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, theta = dl.sparsemap(scores, dl.Matching()), scores.numpy()
    error, inexact = (np.abs(solve(solver, theta) - y.numpy()).max() for solver in (exact, loose))
    print(f"sparsemap, {N} x {N} matchings, batch {BATCH}: at most {error:.1e} from OSQP polished at 1e-8")
    assert error < 1e-6
    leaf = scores.clone().requires_grad_()

    def both_ways() -> None:
        dl.sparsemap(leaf, dl.Matching()).square().sum().backward()

    for threads in (1, 2):
        dl.set_num_threads(threads)
        calls = [lambda: dl.sparsemap(scores, dl.Matching()), both_ways]
        calls += [lambda: solve(exact, theta), lambda: solve(loose, theta)]
        ours, learning, polished, default = best(calls, rounds)
        print(
            f"  {threads} thread{'s' * (threads > 1)}: {1e3 * ours:.2f} ms, with its gradient {1e3 * learning:.2f}; "
            f"OSQP {1e3 * polished:.2f} ({polished / ours:.1f}x), as it comes {1e3 * default:.2f} "
            f"({default / ours:.1f}x, off by {inexact:.0e}, no gradient)"
        )


def compare_perturbed(rounds: int) -> None:
    scores = torch.randn(INSTANCES, LARGE, LARGE, generator=torch.Generator().manual_seed(0))

    def loop(noise: torch.Tensor | None = None) -> torch.Tensor:
        if noise is None:  # torch's own draws: NumPy's take twice as long
            noise = torch.randn(SAMPLES, *scores.shape, generator=torch.Generator().manual_seed(1))
        theta, mean = (scores + noise).numpy(), np.zeros(scores.shape, np.float32)
        for sample in theta:
            for one, total in zip(sample, mean, strict=True):
                total[linear_sum_assignment(one, maximize=True)] += 1
        return torch.from_numpy(mean / SAMPLES)

    def ours(scores: torch.Tensor = scores) -> torch.Tensor:
        return dl.perturbed(scores, dl.Matching(), samples=SAMPLES, generator=torch.Generator().manual_seed(1))

    leaf = scores.clone().requires_grad_()

    def both_ways() -> None:
        ours(leaf).square().sum().backward()

    same = dl.Normal().sample((SAMPLES, *scores.shape), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours(), loop(same))
    print(f"perturbed, {SAMPLES} samples of {INSTANCES} matchings {LARGE} x {LARGE}: the same mean as SciPy's")
    for threads in (1, 2):
        dl.set_num_threads(threads)
        forward, learning, scipy = best([ours, both_ways, loop], rounds)
        print(
            f"  {threads} thread{'s' * (threads > 1)}: {1e3 * forward:.1f} ms, with its gradient {1e3 * learning:.1f}; "
            f"SciPy's loop, which has none, {1e3 * scipy:.1f} ({scipy / forward:.1f}x)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Commit {code_version()}, {machine()}, OSQP {osqp.__version__}.")
    compare_sparsemap(arguments.rounds)
    compare_perturbed(arguments.rounds)
