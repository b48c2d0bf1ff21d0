"""Mutate the core, one small change at a time, and see whether the tests notice.

    python tools/mutants [--count 100] [--seed 0] [--new] [--cases 5]

A mutant of ``FILES`` is one changed operator, number, comparison, condition, or a call left out. The ``TESTS`` first
run unchanged: a mutant can only be killed by a test that passed, and runs only those that reached its lines, one case
of each before the second ones, until one fails, the process dies, or it takes many times as long as it did unchanged.

The tree is never written to. A process that has collected the tests is forked for each mutant, and there the functions
get the changed code; what is evaluated at import is changed while it is imported. Processes that tests start are not
mutated. ``.mutants/`` keeps what was found: run again, it goes on where it was, and tries only the survivors again.
"""

import argparse
import importlib
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mutation import SOURCES, Mutant, digest, mutants
from running import SURVIVED, collected, first_failure, forked, functions, put_in, put_in_when_imported, reached_lines

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutants"
FILES = ("losses/direct.py", "parts.py", "structures/base.py", "costs.py")
NAMES = "core parts costs direct attacks instances task_losses structures errors transforms certificate criterion"
TESTS = [*(f"tests/test_{name}.py" for name in (*NAMES.split(), "scores_in_parts")), "src/directloss/costs.py"]


def measured(session: pytest.Session) -> str:
    return reached_lines(session, FILES)


def witnesses() -> dict[str, Any]:
    """Every test that passes unchanged; a file is run again if it or what it uses has changed."""
    others = [path.read_text() for path in sorted(ROOT.glob("tests/*.py")) if not path.name.startswith("test_")]
    others += [path.read_text() for path in sorted(SOURCES.rglob("*.py"))]
    digests = {file: digest((ROOT / file).read_text(), *others) for file in TESTS}
    path = KEPT / "reached.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for file in TESTS:
        if known.get(file, {}).get("digest") != digests[file]:
            tests = json.loads(forked(lambda file=file: collected([file], measured)))
            known[file] = {"digest": digests[file], "tests": tests}
            path.write_text(json.dumps(known))
            seconds = sum(test["seconds"] for test in tests.values())
            print(f"{file}: {len(tests)} tests, {seconds:.0f} s", flush=True)
    every = {name: test for file in TESTS for name, test in known[file]["tests"].items()}
    for name in every:
        if not every[name]["passes"]:
            print(f"fails unchanged, and is left out: {name}")
    return {name: test for name, test in every.items() if test["passes"]}


def load(record: Path) -> dict[str, dict[str, Any]]:
    """The last verdict on each mutant, by key."""
    return {row["key"]: row for row in map(json.loads, record.read_text().splitlines())} if record.exists() else {}


def witnesses_of(mutant: Mutant, tests: dict[str, Any], cases: int | None) -> list[str]:
    """The tests that reach a mutant: first one case of each, the quickest before the others, then the second ones."""
    reaching: dict[str, list[str]] = {}
    for name in sorted(tests, key=digest):  # in no order, but always the same
        if mutant.at_import or not set(mutant.lines).isdisjoint(tests[name]["lines"].get(mutant.file, ())):
            reaching.setdefault(name.split("[")[0], []).append(name)
    ranked = [(rank, name) for names in reaching.values() for rank, name in enumerate(names[:cases])]
    return [name for _, name in sorted(ranked, key=lambda pair: (pair[0], tests[pair[1]]["seconds"]))]


def judge(drawn: list[Mutant], tests: dict[str, Any], record: Path, seed: int, cases: int | None) -> None:
    """Write a verdict on each mutant that is not known to be killed."""
    known, say = load(record), os.fdopen(os.dup(1), "w")

    def verdict(mutant: Mutant, work: Callable[[list[str]], str]) -> None:
        names = witnesses_of(mutant, tests, cases)
        found = forked(lambda: work(names), 60 + 10 * sum(tests[name]["seconds"] for name in names))
        first = known.get(mutant.key, {"seed": seed})["seed"]
        row = {"key": mutant.key, "seed": first, "mutant": str(mutant), "verdict": found, "tests": len(names)}
        with record.open("a") as file:
            print(json.dumps(row), file=file)
        print(f"{SURVIVED if found == SURVIVED else 'killed':9} {mutant}", file=say, flush=True)

    def serve(session: pytest.Session) -> str:
        imported = functions()
        for mutant in waiting:
            if not mutant.at_import:

                def changed(names: list[str], mutant: Mutant = mutant) -> str:
                    put_in(mutant, imported)
                    return first_failure(session, names)

                verdict(mutant, changed)
        return "served"

    waiting = [mutant for mutant in drawn if known.get(mutant.key, {"verdict": SURVIVED})["verdict"] == SURVIVED]
    if forked(lambda: collected(TESTS, serve)) != "served":
        sys.exit("the tests cannot be collected")
    for mutant in waiting:
        if mutant.at_import:

            def imported(names: list[str], mutant: Mutant = mutant) -> str:
                put_in_when_imported(mutant)
                return collected(TESTS, lambda session: first_failure(session, names))

            verdict(mutant, imported)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="so many mutants, the same number of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--new", action="store_true", help="only mutants that no other seed has drawn")
    parser.add_argument("--cases", type=int, help="so many of each parametrised test, not all")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    for slow_to_import in ("torch", "numba", "scipy.optimize", "networkx"):
        importlib.import_module(slow_to_import)
    KEPT.mkdir(exist_ok=True)
    tests, record = witnesses(), KEPT / "verdicts.jsonl"

    known, drawn, total = load(record), [], 0
    for file in FILES:
        every = list(mutants(file))
        total += len(every)
        if options.new:
            every = [one for one in every if known.get(one.key, {"seed": options.seed})["seed"] == options.seed]
        drawn += random.Random(options.seed).sample(every, min(options.count // len(FILES), len(every)))
    judge(drawn, tests, record, options.seed, options.cases)
    known = load(record)
    survivors = [mutant for mutant in drawn if known[mutant.key]["verdict"] == SURVIVED]
    for mutant in survivors:
        print(f"survived  {mutant}, though {known[mutant.key]['tests']} tests come by")
    print(f"{len(drawn) - len(survivors)} of {len(drawn)} killed, drawn from {total} mutants with seed {options.seed}")


if __name__ == "__main__":
    main()
