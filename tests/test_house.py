"""The layers of the house: each knows only those below it, and names are where the tree says they are."""

import ast
import importlib
import types
from pathlib import Path

import pytest

import directloss as dl

SOURCE = Path(dl.__file__).parent
# From the ground up; a module may import from its own layer and from those before it.
LAYERS = [
    {
        "errors",
        "files",
        "later",
        "panels",
        "shown",
        "transforms",
        "threads",
        "compiling",
        "dtypes",
        "layout",
        "parts",
        "parts_kernel",
        "noise",
        "perturbation",
        "costs",
    },
    {"structures"},
    {"losses", "layers", "metrics"},
    {"nets", "judging", "neighbors"},
    {"data", "lab"},
    {"experiments"},
    {"cli", "__main__"},
]
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent != SOURCE)


def layer_of(module: str) -> int:
    (index,) = (index for index, names in enumerate(LAYERS) if module.split(".")[1] in names)
    return index


def imports(path: Path) -> set[str]:
    """The modules of the library that a file imports, those inside functions included; not those for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {node.module} if node.module != "directloss" else {f"directloss.{name.name}" for name in node.names}
            )
    return {name for name in found if name.startswith("directloss.") and not name.endswith("__version__")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_own_layer_and_below(path):
    module = "directloss." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    above = {name for name in imports(path) if layer_of(name) > layer_of(module)}
    assert not above, f"{module} imports {sorted(above)} from above"


def test_every_module_has_a_layer():
    tops = {
        path.stem if path.is_file() else path.name for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert tops - {"__init__", "__pycache__"} <= set().union(*LAYERS)


def test_no_import_goes_in_a_circle():
    graph = {}
    for path in FILES:
        name = "directloss." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = imports(path)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        for other in graph.get(name, ()):
            visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_every_public_name_is_defined_where_the_table_says():
    for name, module in dl._PUBLIC.items():
        found = getattr(importlib.import_module(f"directloss.{module}"), name)
        assert getattr(dl, name) is found
        assert found.__module__ == f"directloss.{module}"
    assert set(dl.__all__) == {*dl._PUBLIC, *dl._MODULES}


def test_no_module_is_hidden_by_a_name_of_its_package():
    for path in FILES:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if path.name == "__init__.py" or path.stem == "__main__":
            continue
        importlib.import_module(".".join(["directloss", *parts]))
        package = importlib.import_module(".".join(["directloss", *parts[:-1]]))
        assert isinstance(getattr(package, parts[-1]), types.ModuleType), f"{'.'.join(parts)} is hidden"


def test_no_file_is_longer_than_three_hundred_lines_without_a_reason():
    for path in FILES:
        text = path.read_text()
        lines = text.count("\n")
        assert lines <= 300 or "the file is long because" in text.lower(), f"{path.name}: {lines} lines"
