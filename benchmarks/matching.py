"""The pair of matchings behind one gradient, against SciPy, lapx and Sinkhorn, side by side in one process.

    python benchmarks/matching.py [--sizes 10,100] [--unrelated] [--markdown FILE] [--store FILE]

Ours solves scores and scores + eps * cost as `Matching().solve_along(scores, cost, (0, eps))`. SciPy solves the two
in a loop over instances, lapx in two calls of its batch solver (the faster of two), Sinkhorn runs 20 log-space
iterations forward and backward (`dl.sinkhorn`; a plain torch version is slower still). Every time is the best of
several runs, every ratio is theirs over ours, and ours is checked against SciPy's objective in the same run.

    python benchmarks/matching.py --families [--markdown FILE]

solves matrices that are hard in other ways (ties, scales, structure) once each, and prints our time over SciPy's.
"""

import argparse
import functools
import math
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import lap
import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

import directloss as dl
from directloss.lab.provenance import code_version, machine
from directloss.lab.store import Key, Store
from directloss.lab.table import markdown

SIZES = (5, 10, 25, 40, 60, 100, 200, 500)
KINDS = ("uniform", "easy", "sorting", "sorting+noise")
COSTS = {"hamming": -1.0, "dense": -12.0}
FAMILY_SIZES = (50, 100, 200, 400, 800)


def toeplitz(rng: np.random.Generator, n: int) -> np.ndarray:
    """Constant along diagonals."""
    return rng.standard_normal(2 * n - 1)[np.arange(n)[:, None] - np.arange(n) + n - 1]


FAMILIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": lambda rng, n: rng.random((n, n)),
    "easy": lambda rng, n: rng.random((n, n)) + np.eye(n)[rng.permutation(n)],
    "sorting": lambda rng, n: rng.random((n, 1)) * np.arange(n),
    "constant": lambda rng, n: np.full((n, n), math.pi),
    "one row of ones": lambda rng, n: np.zeros((n, n)) + np.eye(n)[:, [n // 2]],
    "0/1, 1 % ones": lambda rng, n: (rng.random((n, n)) < 0.01).astype(float),
    "0/1, 10 % ones": lambda rng, n: (rng.random((n, n)) < 0.1).astype(float),
    "0/1, 50 % ones": lambda rng, n: (rng.random((n, n)) < 0.5).astype(float),
    "0/1, 90 % ones": lambda rng, n: (rng.random((n, n)) < 0.9).astype(float),
    "integers 0 to 9": lambda rng, n: rng.integers(0, 10, (n, n)).astype(float),
    "integers near 2^53": lambda rng, n: 2.0**53 - rng.integers(0, 10, (n, n)),
    "rows times 1e-10 to 1e10": lambda rng, n: rng.random((n, n)) * 10.0 ** rng.integers(-10, 11, (n, 1)),
    "rows times 1e-10 or 1e10": lambda rng, n: rng.random((n, n)) * 10.0 ** rng.choice([-10, 10], (n, 1)),
    "rank 3": lambda rng, n: rng.standard_normal((n, 3)) @ rng.standard_normal((3, n)),
    "Toeplitz": toeplitz,
    "near-duplicate rows": lambda rng, n: rng.random((1, n)) + 1e-9 * rng.random((n, n)),
    "rows in near-duplicate pairs": lambda rng, n: rng.random((n, n))[np.arange(n) // 2] + 1e-9 * rng.random((n, n)),
}


def make_pair(
    kind: str, cost: str, batch: int, size: int, generator: torch.Generator, unrelated: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and the cost of sorting numbers x.

    Scores are uniform: U(0, 1), which knows nothing of x. easy: uniform plus 1 on the matching that sorts x. sorting:
    x_i * j, which sorts x by the smallest margins; sorting+noise: the same plus Gumbel noise of unit scale. The cost is
    hamming, to the matching that sorts x, or dense: the squared error of where x_i is put. ``unrelated`` takes the cost
    of other numbers: the second maximiser then has nothing to do with the first, as early in training.
    """
    x = torch.rand(batch, size, generator=generator)
    right = torch.nn.functional.one_hot(x.argsort(-1).argsort(-1), size).float()
    scores = torch.rand(batch, size, size, generator=generator)
    if kind == "easy":
        scores = scores + right
    elif kind != "uniform":
        scores = x.unsqueeze(-1) * torch.arange(float(size))
        if kind == "sorting+noise":
            scores = scores + dl.Gumbel().sample(scores.shape, generator=generator)
    if unrelated:
        x = torch.rand(batch, size, generator=generator)
        right = torch.nn.functional.one_hot(x.argsort(-1).argsort(-1), size).float()
    return scores, dl.costs.hamming(right) if cost == "hamming" else dl.costs.squared_error(x, x.sort(-1).values)


def best_time(function: Callable[[], object], seconds: float) -> float:
    """The shortest of the runs that fit the time, after a first."""
    function()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < seconds and len(times) < 50):
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return min(times)


def with_threads(count: int, function: Callable[[], object], seconds: float) -> float:
    torch.set_num_threads(count)
    dl.set_num_threads(count)
    return best_time(function, seconds)


def measure(kind: str, cost_name: str, size: int, seconds: float, unrelated: bool) -> dict[str, float]:
    """Microseconds for each pair, and theirs over ours."""
    batch = max(2, min(2000, int(5e5 / size**2)))
    scores, cost = make_pair(kind, cost_name, batch, size, torch.Generator().manual_seed(size), unrelated)
    epsilon = COSTS[cost_name]
    both = [(scores + step * cost).numpy() for step in (0.0, epsilon)]
    negated = [-matrices for matrices in both]

    def ours() -> torch.Tensor:
        positions = dl.Matching().vertices_along((scores,), cost, (0.0, epsilon))[0].positions
        assert positions is not None
        return positions

    def scipy() -> None:
        for matrices in both:
            for matrix in matrices:
                linear_sum_assignment(matrix, maximize=True)

    def lapx(solver: Callable[..., object]) -> Callable[[], object]:
        return lambda: [solver(matrices, return_cost=False, n_threads=1) for matrices in negated]

    def sinkhorn() -> None:
        leaf = scores.clone().requires_grad_()
        dl.sinkhorn(leaf, dl.Matching(), iterations=20).square().sum().backward()

    check_exact(ours(), scores, cost, (0.0, epsilon))
    one = with_threads(1, ours, seconds)
    return {
        "ours": 1e6 * one / batch,
        "scipy": with_threads(1, scipy, seconds) / one,
        "lapx": min(with_threads(1, lapx(s), seconds) for s in (lap.lapjvx_batch, lap.lapjvs_batch)) / one,
        "sinkhorn": with_threads(1, sinkhorn, seconds) / one,
        "two": one / with_threads(2, ours, seconds),
    }


def measure_family(make: Callable[[np.random.Generator, int], np.ndarray], size: int, seconds: float) -> float:
    """Our time for a solve over SciPy's, one thread, float64."""
    rng = np.random.default_rng(size)
    matrices = np.stack([make(rng, size) for _ in range(max(1, min(5, 200_000 // size**2)))])
    scores = torch.from_numpy(matrices)
    nothing = torch.zeros(size, size, dtype=torch.float64)
    ours = functools.partial(dl.Matching().vertices_along, (scores,), nothing, (0.0,))
    check_exact(ours()[0].positions, scores, nothing, (0.0,))
    took = with_threads(1, ours, seconds)
    return took / with_threads(1, lambda: [linear_sum_assignment(m, maximize=True) for m in matrices], seconds)


def measure_families(seconds: float) -> list[list[str]]:
    """A line of the table for each family: a ratio for each size, and the worst."""
    lines = []
    for name, make in FAMILIES.items():
        ratios = [measure_family(make, size, seconds) for size in FAMILY_SIZES]
        lines.append([name, *(f"{ratio:.2f}" for ratio in (*ratios, max(ratios)))])
        print(f"{name:>30}", *(f"{text:>6}" for text in lines[-1][1:]), flush=True)
    return lines


def check_exact(positions: torch.Tensor, scores: torch.Tensor, cost: torch.Tensor, steps: tuple[float, ...]) -> None:
    """Ours must reach SciPy's objective, computed in float64, with a permutation."""
    size = scores.shape[-1]
    for columns, step in zip((positions % size).numpy(), steps, strict=True):
        for instance, matrix in enumerate((scores.double() + step * cost.double()).numpy()):
            rows, best = linear_sum_assignment(matrix, maximize=True)
            assert len(set(columns[instance])) == size
            gap = matrix[rows, best].sum() - matrix[np.arange(size), columns[instance]].sum()
            assert abs(gap) <= 1e-11 * size * np.abs(matrix).max(), gap


def memory_copies(size: int = 100, batch: int = 200) -> float:
    """Peak of memory that a pair of dense solutions takes, in copies of the batch (the two solutions are two)."""
    scores = torch.rand(batch, size, size)
    dl.set_num_threads(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        tracemalloc.start()
        dl.Matching().solve_along(scores, scores, (0.0, -1.0))
        outside_torch = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    level = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return (peak + outside_torch) / (scores.numel() * scores.element_size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--families", action="store_true", help="hard families, one solve each, instead of the pair")
    parser.add_argument("--unrelated", action="store_true", help="costs that have nothing to do with the scores")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each measurement")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--store", type=Path, help="also save the means in this results file, for the report")
    options = parser.parse_args()
    commit = code_version()
    if options.families:
        print(f"commit {commit}, {machine()}, scores float64, our time over SciPy's")
        table = markdown(["scores", *map(str, FAMILY_SIZES), "worst"], measure_families(options.seconds))
        if options.markdown:
            options.markdown.write_text(f"Commit {commit}, {machine()}, float64 scores.\n\n{table}")
        return
    lines = []
    means = []
    print(f"commit {commit}, {machine()}, scores float32, lapx {lap.__version__}")
    for size in map(int, options.sizes.split(",")):
        cells = []
        for kind in KINDS:
            for cost in COSTS:
                cell = measure(kind, cost, size, options.seconds, options.unrelated)
                cells.append(cell)
                lines.append(
                    [str(size), kind, cost, f"{cell['ours']:.1f}"]
                    + [f"{cell[name]:.1f}" for name in ("scipy", "lapx", "sinkhorn", "two")]
                )
                print(*(f"{text:>14}" for text in lines[-1]), flush=True)
        ratios = [cell["scipy"] for cell in cells]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        means.append([str(size), f"{mean:.1f}", f"{min(ratios):.1f}"])
        if options.store:
            config = {"benchmark": "matching", "size": size, "commit": commit, "seed": size}
            config |= {"unrelated": options.unrelated, "spread": "best of several runs of each kind, one process"}
            Store(options.store).add(Key("speed", config), [(0, {"scipy_mean": mean, "scipy_least": min(ratios)})])
        print(f"d={size}: over SciPy {mean:.1f} in the geometric mean, {min(ratios):.1f} at least", flush=True)
    copies = memory_copies()
    print(f"memory of a dense pair: {copies:.2f} copies of the batch")
    if options.markdown:
        header = [
            "d",
            "scores",
            "cost",
            "ours, us a pair",
            "SciPy / ours",
            "lapx / ours",
            "Sinkhorn / ours",
            "2 threads",
        ]
        text = (
            f"Commit {commit}, {machine()}, float32 scores, lapx {lap.__version__}; a dense pair takes {copies:.2f} "
            "copies of the batch.\n\n"
            + markdown(["d", "SciPy / ours, geometric mean", "least"], means)
            + "\n"
            + markdown(header, lines)
        )
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
