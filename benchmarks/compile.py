"""Seconds that numba compiles for after a fresh install, kernel by kernel, each time with an empty cache.

    python benchmarks/compile.py [--repeat 3]

A fresh process imports directloss and torch, then times the first call of each kernel less its second, by the wall
and, in brackets, by the processor (the same on an idle machine); the first kernel also pays for numba's own start. The
sum is what training a matching of less than 16 rows needs. Another fresh process runs the first block of the README,
which prints what it learned, and times how long numba compiled, by the wall.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from directloss.lab.provenance import code_version, machine

CALLS = {
    "Gumbel noise": "dl.Gumbel().sample((2, 3))",
    "matching, float32": "dl.Matching().solve(torch.rand(2, 3, 3))",
    "direct loss after it": "dl.direct_loss(SCORES.requires_grad_(), SCORES, dl.Matching(), epsilon=1.0).backward()",
    "matching of 16 rows or more": "dl.Matching().solve(torch.rand(2, 16, 16))",
    "matching, float64": "dl.Matching().solve(torch.rand(2, 3, 3, dtype=torch.float64))",
    "Sinkhorn": "dl.sinkhorn(SCORES, dl.Matching()).sum().backward()",
}
TRAINING = ("Gumbel noise", "matching, float32", "direct loss after it")

PROGRAM = """
import sys, time
import torch, directloss as dl

SCORES = torch.rand(2, 3, 3)
torch.zeros(3, requires_grad=True).sum().backward()
dl.direct_loss, dl.sinkhorn  # names are imported when they are first used
for call in sys.argv[1:]:
    times = []
    for _ in range(2):
        wall, processor = time.perf_counter(), time.process_time()
        eval(call)
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    print(times[0][0] - times[1][0], times[0][1] - times[1][1])
"""


BLOCK = """
import sys
from numba.core.event import install_timer

with install_timer("numba:compiler_lock", lambda seconds: print(f"numba compiled for {seconds:.2f} s")):
    exec(sys.argv[1])
"""


def run(program: str, *arguments: str) -> str:
    """What a fresh process prints, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout


def compile_times() -> dict[str, tuple[float, ...]]:
    times = [tuple(map(float, line.split())) for line in run(PROGRAM, *CALLS.values()).splitlines()]
    return dict(zip(CALLS, times, strict=True))


def text(times: Iterable[tuple[float, ...]]) -> str:
    wall, processor = map(sum, zip(*times, strict=True))
    return f"{wall:6.2f} ({processor:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"commit {code_version()}, {machine()}; seconds, {options.repeat} runs")
    runs = [compile_times() for _ in range(options.repeat)]
    for name in CALLS:
        print(f"{name:>30}", *(text([one[name]]) for one in runs))
    print(f"{'to train a matching':>30}", *(text(one[name] for name in TRAINING) for one in runs))
    (block, *_) = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
    for _ in range(options.repeat):
        print("first block of the README:", ", ".join(run(BLOCK, block).splitlines()))


if __name__ == "__main__":
    main()
