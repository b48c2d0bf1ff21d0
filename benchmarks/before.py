"""The sorting experiment of this source against that of another commit: seconds of an epoch, and memory.

    git worktree add /tmp/before 76d767d && python benchmarks/before.py /tmp/before [--sizes 10,100] [--epochs 60]

Two processes train the paper's recipe, a full stack of repetitions, and take turns epoch by epoch, so that whatever
disturbs one disturbs the other. Prints the best and the median epoch of each, the peak of its memory (once numba's
cache is filled: run it twice), and the ratios, ours over theirs.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from directloss.lab.provenance import code_version, machine

PROGRAM = """
import resource, sys, time
from dataclasses import replace
import torch
import directloss as dl
from directloss.experiments.sorting import paper
try:
    from directloss.experiments.sorting_stack import train
except ImportError:
    from directloss.experiments.sorting import train

size, epochs, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
dl.set_num_threads(threads)
start = 0.0

def step(_):
    global start
    print(time.perf_counter() - start, flush=True)
    sys.stdin.readline()
    start = time.perf_counter()

config = replace(paper("dsl", size, 0), max_epochs=epochs, patience=0)
for _ in train(config, range(config.stack), on_step=step):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def epochs_in_turn(sources: list[Path], size: int, epochs: int, threads: int) -> list[tuple[list[float], float]]:
    """Seconds of each epoch of each source, after as many to warm up, and its memory in MB."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, (size, 2 * epochs, threads))],
            env=os.environ | {"PYTHONPATH": str(source / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sources
    ]
    taken: list[list[float]] = [[] for _ in sources]
    for _ in range(2 * epochs):
        for process, times in zip(running, taken, strict=True):
            assert process.stdin is not None
            assert process.stdout is not None
            times.append(float(process.stdout.readline()))
            process.stdin.write("\n")
            process.stdin.flush()
    return [(times[epochs:], float(process.communicate()[0])) for process, times in zip(running, taken, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder of the other commit, e.g. of git worktree add")
    parser.add_argument("--sizes", default="10,100")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"commit {code_version()} against {options.before}, {machine()}, {options.threads} threads")
    sources = [Path(__file__).parents[1], options.before]
    for size in map(int, options.sizes.split(",")):
        found = epochs_in_turn(sources, size, options.epochs, options.threads)
        figures = [(min(times), statistics.median(times), memory) for times, memory in found]
        for name, (best, median, memory) in zip(("ours", "before"), figures, strict=True):
            print(f"d = {size}, {name}: best {1e3 * best:.1f} ms, median {1e3 * median:.1f} ms, {memory:.0f} MB")
        ratios = [ours / theirs for ours, theirs in zip(*figures, strict=True)]
        print(f"d = {size}: best {ratios[0]:.2f}, median {ratios[1]:.2f}, memory {ratios[2]:.2f}", flush=True)


if __name__ == "__main__":
    main()
