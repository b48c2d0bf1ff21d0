"""Mutate the core, one small change at a time, and see whether the tests notice.

    python tools/mutants.py [--count 100] [--seed 0] [--new]

A mutant of ``FILES`` is one changed operator, number, comparison, condition, or a call left out. The ``TESTS`` first
run unchanged: a mutant can only be killed by a test that passed, and runs only those that reached its lines, the
quickest first, until one fails, the process dies, or it takes many times as long as it did unchanged.

The tree is never written to. A process that has collected the tests is forked for each mutant, and there the functions
get the changed code; what is evaluated at import is changed while it is imported. Processes that tests start are not
mutated. ``.mutants/`` keeps what was found: run again, it goes on where it was, and tries only the survivors again.
"""

import argparse
import ast
import gc
import hashlib
import importlib.machinery
import json
import math
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src/directloss"
KEPT = ROOT / ".mutants"
FILES = ("losses/direct.py", "parts.py", "structures/base.py", "costs.py")
NAMES = "parts costs direct attacks instances task_losses structures errors transforms certificate criterion"
TESTS = [*(f"tests/test_{name}.py" for name in (*NAMES.split(), "scores_in_parts", "rules")), "src/directloss/costs.py"]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    one: other
    for pair in (
        (ast.Add, ast.Sub),
        (ast.Mult, ast.Div),
        (ast.Mod, ast.FloorDiv),
        (ast.BitAnd, ast.BitOr),
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.And, ast.Or),
        (ast.Is, ast.IsNot),
        (ast.In, ast.NotIn),
    )
    for one, other in (pair, pair[::-1])
} | {ast.Pow: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One field of a node of a file's tree that becomes something else."""

    file: str
    tree: ast.Module
    node: ast.AST
    field: str
    value: Any
    lines: range  # of the statement, without the statements in it
    at_import: bool

    def code(self) -> CodeType:
        """The changed file, compiled; the tree is left as it was."""
        kept = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            return compile(ast.fix_missing_locations(self.tree), str(SOURCES / self.file), "exec")
        finally:
            setattr(self.node, self.field, kept)

    def __str__(self) -> str:
        before, kept = ast.unparse(self.node), getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        after = ast.unparse(self.node)
        setattr(self.node, self.field, kept)
        line, column = self.node.lineno, self.node.col_offset  # type: ignore[attr-defined]
        shown = [text.splitlines()[0] for text in (before, after)]
        return f"{self.file}:{line}:{column}: {'  ->  '.join(shown)}"

    @property
    def key(self) -> str:
        """The same as long as the file is."""
        return digest((SOURCES / self.file).read_text(), self.field, str(self))


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The fields of a node that can be changed, with what they become."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            yield "op", SWAPS[type(op)]()
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield "ops", [SWAPS[type(op)]()]
        case ast.Constant(value=bool(value)):
            yield "value", not value
        case ast.Constant(value=int(value) | float(value)):
            yield "value", value + 1
        case ast.UnaryOp(op=ast.USub()):
            yield "op", ast.UAdd()
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "test", ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=[test]):
            yield "ifs", [ast.UnaryOp(ast.Not(), test)]
        case ast.Expr(value=ast.Call()):
            yield "value", ast.Constant(None)


def types_and_texts(tree: ast.Module) -> set[ast.AST]:
    """Nodes of annotations, type checks and error messages: changed, they say nothing about the tests."""
    roots: list[ast.AST | None] = [
        node for node in tree.body if isinstance(node, ast.Assign) and "|" in ast.unparse(node)
    ]
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                roots.append(kinds)
            case ast.Raise():
                roots.append(node)
    return {node for root in roots if root is not None for node in ast.walk(root)}


def mutants(file: str) -> Iterator[Mutant]:
    tree = ast.parse((SOURCES / file).read_text())
    left_alone = types_and_texts(tree)

    def walk(node: ast.AST, lines: range, at_import: bool) -> Iterator[Mutant]:
        if node in left_alone:
            return
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            lines = range(node.lineno, max(node.lineno, body[0].lineno - 1 if body else node.end_lineno or 0) + 1)
        if hasattr(node, "lineno"):
            for field, value in changes(node):
                yield Mutant(file, tree, node, field, value, lines, at_import)
        for name, child in ast.iter_fields(node):
            inside = isinstance(node, ast.FunctionDef) and name == "body"
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    yield from walk(one, lines, at_import and not inside)

    yield from walk(tree, range(0), True)


SURVIVED = "survived"


def forked(work: Callable[[], str], seconds: float | None = None) -> str:
    """What ``work`` returns in a process of its own, or what ended that process. ``seconds`` are of computing."""
    reader, writer = os.pipe()
    if pid := os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return signal.Signals(-status).name if status < 0 else said
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds),) * 2)
            signal.alarm(1800)  # for what waits and computes nothing
        with os.fdopen(writer, "w") as pipe:
            pipe.write(work())
    finally:
        os._exit(0)


def collected(files: list[str], then: Callable[[pytest.Session], str]) -> str:
    """What ``then`` makes of a session that has collected the files."""

    class Plugin:
        result = "tests cannot be collected"

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if not session.testsfailed:
                self.result = then(session)
            return True

    plugin = Plugin()
    pytest.main(["-p", "no:cacheprovider", "--capture=no", *files], [plugin])
    return plugin.result


def run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether the test passes."""
    failed = session.testsfailed
    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return session.testsfailed == failed


def reached_lines(session: pytest.Session) -> str:
    """Of each test that passes, how long it takes and which lines of ``FILES`` it comes through, as JSON."""
    paths = {str(SOURCES / file): file for file in FILES}
    found: dict[str, Any] = {}
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        seen: dict[str, set[int]] = {}

        def line(frame: Any, *_: Any, seen: dict[str, set[int]] = seen) -> Any:
            seen.setdefault(paths[frame.f_code.co_filename], set()).add(frame.f_lineno)
            return line

        start = time.process_time()
        sys.settrace(lambda frame, *_, line=line: line if frame.f_code.co_filename in paths else None)
        passes = run(session, item, following)
        sys.settrace(None)
        lines = {file: sorted(numbers) for file, numbers in seen.items()}
        found[item.nodeid] = {"passes": passes, "seconds": time.process_time() - start, "lines": lines}
    return json.dumps(found)


def first_failure(session: pytest.Session, tests: list[str]) -> str:
    items = {item.nodeid: item for item in session.items}
    chosen = [items[test] for test in tests]
    pairs = zip(chosen, [*chosen[1:], None], strict=True)
    return next((item.nodeid for item, following in pairs if not run(session, item, following)), SURVIVED)


def put_in(mutant: Mutant) -> None:
    """Give the functions of an imported file their changed code."""

    def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
        yield (code.co_qualname, code.co_firstlineno), code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from codes(constant)

    changed = dict(codes(mutant.code()))
    gc.unfreeze()  # the tests' own hook hides all objects
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(SOURCES / mutant.file):
            function.__code__ = changed[function.__code__.co_qualname, function.__code__.co_firstlineno]


def put_in_when_imported(mutant: Mutant) -> None:
    get_code = importlib.machinery.SourceFileLoader.get_code

    def changed(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return mutant.code() if loader.path == str(SOURCES / mutant.file) else get_code(loader, name)

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[method-assign,assignment]


def witnesses() -> dict[str, Any]:
    """Every test that passes unchanged; a file is run again if it or what it uses has changed."""
    others = [path.read_text() for path in sorted(ROOT.glob("tests/*.py")) if not path.name.startswith("test_")]
    others += [path.read_text() for path in sorted(SOURCES.rglob("*.py"))]
    digests = {file: digest((ROOT / file).read_text(), *others) for file in TESTS}
    path = KEPT / "reached.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for file, found in digests.items():
        if known.get(file, {}).get("digest") != found:
            tests = json.loads(forked(lambda file=file: collected([file], reached_lines)))  # type: ignore[misc]
            known[file] = {"digest": found, "tests": tests}
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


def judge(drawn: list[Mutant], tests: dict[str, Any], record: Path, seed: int) -> None:
    """Write a verdict on each mutant that is not known to be killed."""
    known, say = load(record), os.fdopen(os.dup(1), "w")

    def verdict(mutant: Mutant, work: Callable[[list[str]], str]) -> None:
        def reaches(test: dict[str, Any]) -> bool:
            return mutant.at_import or not set(mutant.lines).isdisjoint(test["lines"].get(mutant.file, ()))

        names = sorted((name for name in tests if reaches(tests[name])), key=lambda name: tests[name]["seconds"])
        found = forked(lambda: work(names), 60 + 10 * sum(tests[name]["seconds"] for name in names))
        first = known.get(mutant.key, {"seed": seed})["seed"]
        row = {"key": mutant.key, "seed": first, "mutant": str(mutant), "verdict": found or "died", "tests": len(names)}
        with record.open("a") as file:
            print(json.dumps(row), file=file)
        print(f"{row['verdict']:9} {mutant}" if found == SURVIVED else f"killed    {mutant}", file=say, flush=True)

    def serve(session: pytest.Session) -> str:
        for mutant in waiting:
            if not mutant.at_import:
                verdict(mutant, lambda names, mutant=mutant: put_in(mutant) or first_failure(session, names))  # type: ignore[misc]
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
    judge(drawn, tests, record, options.seed)
    known = load(record)
    survivors = [mutant for mutant in drawn if known[mutant.key]["verdict"] == SURVIVED]
    for mutant in survivors:
        print(f"survived  {mutant}, though {known[mutant.key]['tests']} tests come by")
    print(f"{len(drawn) - len(survivors)} of {len(drawn)} killed, drawn from {total} mutants with seed {options.seed}")


if __name__ == "__main__":
    main()
