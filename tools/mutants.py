"""Mutate the core, one small change at a time, and see whether the tests notice.

    python tools/mutants.py [--count 100] [--seed 0]

Each mutant of ``FILES`` is one changed operator, number, comparison or condition; it is written to a copy of the tree,
where the tests of ``TESTS`` run until the first failure. Prints every survivor and the share that was killed.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("losses/direct.py", "parts.py", "structures/base.py", "costs.py")
# What is quick and close first: most mutants die in a second.
TESTS = (
    ("parts", "costs"),
    ("direct", "attacks", "instances", "task_losses", "rules", "structures", "errors", "transforms", "certificate"),
    ("criterion", "scores_in_parts", "exact"),
)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    one: other
    for pair in (
        (ast.Add, ast.Sub),
        (ast.Mult, ast.Div),
        (ast.BitAnd, ast.BitOr),
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.And, ast.Or),
        (ast.Is, ast.IsNot),
    )
    for one, other in (pair, pair[::-1])
}


def mutations(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The fields of a node that can be changed, with what they become."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        yield "op", SWAPS[type(node.op)]()
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield "ops", [SWAPS[type(node.ops[0])]()]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "value", node.value + 1
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "value", not node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "op", ast.UAdd()
    if isinstance(node, ast.If | ast.IfExp):
        yield "test", ast.UnaryOp(ast.Not(), node.test)


def types_and_texts(tree: ast.Module) -> set[ast.AST]:
    """Nodes of annotations, type checks and error messages: changed, they say nothing about the tests."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            roots.append(node.args[1])
        if isinstance(node, ast.Raise):
            roots.append(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
            roots.append(node)
    return {node for root in roots if root is not None for node in ast.walk(root)}


def mutants(path: Path) -> Iterator[tuple[str, str]]:
    """Each mutant of a file: what changed, and the whole text."""
    tree = ast.parse(path.read_text())
    left_alone = types_and_texts(tree)
    for node in ast.walk(tree):
        if node in left_alone:
            continue
        for field, value in mutations(node):
            before, kept = ast.unparse(node), getattr(node, field)
            setattr(node, field, value)
            what = f"{path.name}:{getattr(node, 'lineno', 0)}: {before}  ->  {ast.unparse(node)}"
            yield what, ast.unparse(ast.fix_missing_locations(tree))
            setattr(node, field, kept)


def killed(tree: Path) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    for tests in TESTS:
        files = [f"tests/test_{name}.py" for name in tests]
        call = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        try:
            if subprocess.run(call, cwd=tree, env=environment, capture_output=True, timeout=600).returncode:
                return True
        except subprocess.TimeoutExpired:
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="so many mutants, drawn from all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("src", "tests", "docs", "examples", "tools"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "mkdocs.yml", "CHANGELOG.md", "Makefile"):
            shutil.copy(ROOT / name, tree / name)
        if killed(tree):
            sys.exit("the tests fail before anything is mutated")
        every = [(name, *mutant) for name in FILES for mutant in mutants(ROOT / "src/directloss" / name)]
        chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
        survivors = []
        for number, (name, what, text) in enumerate(chosen, 1):
            path = tree / "src/directloss" / name
            original = path.read_text()
            path.write_text(text)
            if not killed(tree):
                survivors.append(what)
                print(f"{number}: survived {what}", flush=True)
            path.write_text(original)
        dead = len(chosen) - len(survivors)
        print(f"{dead} of {len(chosen)} killed, drawn from {len(every)} mutants with seed {options.seed}")


if __name__ == "__main__":
    main()
