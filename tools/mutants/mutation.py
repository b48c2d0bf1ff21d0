"""What a mutant is, and every mutant of a file."""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

SOURCES = Path(__file__).parents[2] / "src/directloss"
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
        case ast.If(test=test) | ast.IfExp(test=test) if not turned(test):
            yield "test", ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call()):
            yield "value", ast.Constant(None)


def turned(test: ast.expr) -> bool:
    """Whether a condition has a mutant that is its negation already."""
    opposites = ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], opposites)


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
