"""Seconds that numba compiles for after a fresh install, kernel by kernel, each time with an empty cache.

    python benchmarks/compile.py [--repeat 3]

A fresh process imports directloss and torch, then times the first call of each kernel less its second; the first
kernel also pays for numba's own start. The last line sums what the first block of the README needs: Gumbel noise
and a matching of float32 scores.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from directloss.experiments.summary import machine
from directloss.runs import code_version

CALLS = {
    "Gumbel noise": "dl.Gumbel().sample((2, 3))",
    "matching, float32": "dl.Matching().solve(torch.rand(2, 3, 3))",
    "matching, float64 after it": "dl.Matching().solve(torch.rand(2, 3, 3, dtype=torch.float64))",
    "Sinkhorn": "dl.sinkhorn(torch.rand(2, 3, 3).requires_grad_()).sum().backward()",
}
README = ("Gumbel noise", "matching, float32")

PROGRAM = """
import sys, time
import torch, directloss as dl

torch.zeros(3, requires_grad=True).sum().backward()
for call in sys.argv[1:]:
    times = []
    for _ in range(2):
        start = time.perf_counter()
        eval(call)
        times.append(time.perf_counter() - start)
    print(times[0] - times[1])
"""


def compile_times() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *CALLS.values()],
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return dict(zip(CALLS, map(float, done.stdout.split()), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"commit {code_version()}, {machine()}; seconds, {options.repeat} runs")
    runs = [compile_times() for _ in range(options.repeat)]
    for name in CALLS:
        print(f"{name:>30}", *(f"{run[name]:6.2f}" for run in runs))
    print(f"{'first block of the README':>30}", *(f"{sum(run[name] for name in README):6.2f}" for run in runs))


if __name__ == "__main__":
    main()
