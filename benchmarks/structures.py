"""Every structure against another library, side by side in one process and one thread, exactness checked in the run.

    python benchmarks/structures.py [NAME ...]

The cases are in ``cases/``, one file for each structure. Prints a table with ratios, and the commit.
"""

import argparse
import importlib.util
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Case:
    """The same batch solved by us and by another library."""

    work: str  # e.g. "GridPath 12x12, 8 neighbours, batch 64"
    against: str  # e.g. "scipy dijkstra, graph building included"
    target: float  # ours must be so many times faster
    ours: Callable[[], object]
    theirs: Callable[[], object]
    check: Callable[[object, object], None]  # raises unless both results are equally good


def seconds(call: Callable[[], object], least: float = 0.3) -> float:
    """Of one call, the best of five rounds of at least ``least`` seconds in all."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    count = max(1, int(least / 5 / max(once, 1e-9)))
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append((time.perf_counter() - start) / count)
    return min(rounds)


def load(names: list[str]) -> list[Case]:
    """The cases of all files in ``cases/``, or of those whose names are given."""
    found: list[Case] = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.py")):
        if not names or path.stem in names:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found += [Case(**case) for case in module.cases()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="files of cases/, without .py (default: all)")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"one thread, commit {commit or 'unknown'}\n")
    print("| work | against | ours, ms | theirs, ms | ratio | target |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for case in load(names):
        case.check(case.ours(), case.theirs())
        ours, theirs = seconds(case.ours), seconds(case.theirs)
        print(
            f"| {case.work} | {case.against} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | {theirs / ours:.1f} "
            f"| {case.target:g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
