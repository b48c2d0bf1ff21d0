"""How much memory a solve takes beyond its scores, in copies of them; the result, one copy, is included.

    python benchmarks/memory.py [--megabytes 64] [--most 3] [NAME ...]

Each structure is solved in a process of its own, in one thread, on a batch of so many megabytes, after a batch of two
has compiled what it needs. What is measured is Linux's own account: the peak of the resident set during the solve, less
the resident set before it. Exits with 1 if a structure takes more than ``--most`` copies.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

import directloss as dl

Made = tuple[dl.Structure, tuple[int, ...]]


def layered(width: int, layers: int) -> list[tuple[int, int]]:
    """Edges from each node of a layer to each of the next, between a first and a last node."""
    names = [[0], *([1 + layer * width + i for i in range(width)] for layer in range(layers)), [1 + layers * width]]
    return [(a, b) for one, next_one in pairwise(names) for a in one for b in next_one]


def path() -> Made:
    edges = layered(8, 8)
    return dl.Path(edges, 0, edges[-1][1]), (len(edges),)


def positive_entries(scores: torch.Tensor) -> torch.Tensor:
    return (scores > 0).to(scores.dtype)


# The structure, and the entries of one instance.
STRUCTURES: dict[str, Callable[[], Made]] = {
    "Choice": lambda: (dl.Choice(), (1000,)),
    "Bits": lambda: (dl.Bits(), (1000,)),
    "Subset": lambda: (dl.Subset(10), (1000,)),
    "Subset, half": lambda: (dl.Subset(50), (100,)),
    "Matching": lambda: (dl.Matching(), (40, 40)),
    "Ranking": lambda: (dl.Ranking(1 / torch.arange(2.0, 102).log2()), (100,)),
    "Interleaving": lambda: (dl.Interleaving(torch.arange(100) % 5 == 0), (100,)),
    "GridPath": lambda: (dl.GridPath(), (12, 12)),
    "GridPath, 8 neighbours": lambda: (dl.GridPath(8), (12, 12)),
    "GridPath, edges": lambda: (dl.GridPath(shape=(12, 12)), (264,)),
    "Path": path,
    "Knapsack": lambda: (dl.Knapsack(torch.arange(1, 51), 100), (50,)),
    "SpanningTree": lambda: (dl.SpanningTree(), (190,)),
    "SpanningTree, edges": lambda: (dl.SpanningTree(torch.combinations(torch.arange(20))), (190,)),
    "Arborescence": lambda: (dl.Arborescence(), (20, 21)),
    "Arborescence, single root": lambda: (dl.Arborescence(single_root=True), (20, 21)),
    "Chain": lambda: (dl.Chain(), (30, 26)),
    # Long, because a programme takes its time whatever its size.
    "Program": lambda: (
        dl.Program(A_ub=torch.ones(1, 20_000), b_ub=torch.tensor([100.0]), integer=False),
        (20_000,),
    ),
    "Finite": lambda: (dl.Finite(torch.randint(0, 2, (50, 100))), (100,)),
    # With few solutions: the time grows with their number, the memory hardly.
    "Pool": lambda: (dl.Pool(dl.Choice(), solve_share=0.1), (100,)),
    "custom": lambda: (dl.custom(positive_entries), (1000,)),
}


def resident(what: str) -> int:
    """VmRSS, the resident set, or VmHWM, its peak, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(what))
    return 1024 * int(line.split()[1])


def copies(name: str, megabytes: int) -> float:
    """What one solve takes beyond its scores, in their size."""
    torch.set_num_threads(1)
    structure, entries = STRUCTURES[name]()
    count = max(1, megabytes * 2**20 // (4 * math.prod(entries)))
    scores = torch.empty(count, *entries).normal_(generator=torch.Generator().manual_seed(0))
    if structure.nonpositive:
        scores.abs_().neg_()
    structure.solve(scores[:2])
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = resident("VmRSS")
    y = structure.solve(scores)
    assert y.shape == scores.shape
    return (resident("VmHWM") - before) / (scores.numel() * scores.element_size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="structures (default: all)")
    parser.add_argument("--megabytes", type=int, default=64, help="of scores, in float32")
    parser.add_argument("--most", type=float, default=3.0, help="copies that are allowed")
    parser.add_argument("--here", action="store_true", help="measure one structure in this process")
    given = parser.parse_args()
    names = given.names or list(STRUCTURES)
    if given.here:
        print(copies(*names, given.megabytes))
        return
    print(f"{given.megabytes} MB of scores\n\n| structure | copies beyond the scores |\n| --- | ---: |", flush=True)
    most = 0.0
    for name in names:
        command = [sys.executable, __file__, "--here", "--megabytes", str(given.megabytes), name]
        found = float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        most = max(most, found)
        print(f"| {name} | {found:.1f} |", flush=True)
    sys.exit(most > given.most)


if __name__ == "__main__":
    main()
