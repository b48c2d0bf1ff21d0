"""What the documents promise: examples run, links lead somewhere, and every public name explains itself."""

import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import directloss as dl
from directloss.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# An example, and what it prints where the page shows that.
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(examples, id=str(page.relative_to(ROOT)))
    for page in PAGES
    if (examples := EXAMPLE.findall(page.read_text()))
]
LINKS = [
    pytest.param(page.parent / target, id=f"{page.relative_to(ROOT)}-{target}")
    for page in PAGES
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    if "://" not in target
]


@pytest.mark.parametrize("examples", EXAMPLES)
def test_examples_run_and_print_what_the_page_says(examples, tmp_path, monkeypatch, capsys):
    """Those of a page go on from each other, as a reader does."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": "example"}
    for block, output in examples:
        exec(compile(block, "example", "exec"), names)
        printed = capsys.readouterr().out
        if output:
            assert printed == output


def test_the_readme_has_an_example():
    assert any("README" in example.id for example in EXAMPLES)


def test_the_readme_example_learns():
    """Its loop is worth copying: the training sequences end up sorted."""
    ((block, _), *_) = EXAMPLE.findall((ROOT / "README.md").read_text())
    torch.manual_seed(0)
    names = {}
    exec(block, names)
    assert (names["order"] == names["x"].argsort().argsort()).float().mean() > 0.9


@pytest.mark.parametrize("target", LINKS)
def test_relative_links_lead_to_a_file(target):
    assert target.exists()


HOOK = runpy.run_path(str(ROOT / "docs/hooks/links.py"))
CODE_LINKS = [
    pytest.param(match["text"], path, id=f"{page.relative_to(ROOT)}-{match['text']}")
    for page in PAGES
    for match, path in HOOK["links"](page.read_text(), page.parent)
    if path.suffix == ".py"
]


@pytest.mark.parametrize(("text", "path"), CODE_LINKS)
def test_a_link_to_code_names_what_stands_in_exactly_one_line(text, path):
    assert text, "the text of a link to a source file is a piece of its code, in backquotes"
    fragment = text.removeprefix("[`").removesuffix("`")
    assert fragment in path.read_text().splitlines()[HOOK["line_of"](path, fragment) - 1]


def test_links_on_the_site_lead_to_the_line():
    folder = ROOT / "docs"
    text = "[`class Gumbel`](../src/directloss/noise.py), [data](data.md#x), [sorting](../results/sorting/README.md)"
    line = HOOK["line_of"](ROOT / "src/directloss/noise.py", "class Gumbel")
    assert HOOK["rewrite"](text, folder, "paper.md") == (
        f"[`class Gumbel`](src/directloss/noise.py.md#__span-0-{line}), [data](data.md#x), [sorting](results/sorting.md)"
    )
    assert HOOK["rewrite"]("[data](docs/data.md)", ROOT, "results/sorting.md") == "[data](../data.md)"


@pytest.mark.parametrize("fragment", ["no such code", "import"])
def test_a_fragment_that_is_nowhere_or_twice_is_refused(fragment):
    with pytest.raises(ValueError, match=f"`{fragment}` is .* of src/directloss/noise.py"):
        HOOK["line_of"](ROOT / "src/directloss/noise.py", fragment)


def test_every_equation_table_and_figure_of_the_paper_has_a_row():
    """Its LaTeX source numbers 44 equations, 4 tables, 4 figures, 4 theorems and 4 corollaries."""
    rows = " ".join(re.findall(r"^\| ([^|]*) \|", (ROOT / "docs/paper.md").read_text(), re.MULTILINE))
    for kind, count in (("equation", 44), ("table", 4), ("figure", 4), ("theorem", 4), ("corollar(?:y|ie)", 4)):
        found = set()
        for first, joint, last in re.findall(rf"{kind}s? (\d+)(?: (and|to) (\d+))?", rows):
            found |= {int(first), int(last or first), *(range(int(first), int(last)) if joint == "to" else ())}
        assert found == set(range(1, count + 1)), kind


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs/decisions/README.md").read_text()
    pages = [page.name for page in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert pages
    assert [page for page in pages if f"({page})" not in index] == []


@pytest.mark.parametrize("name", dl.__all__)
def test_every_public_name_exists_and_is_documented(name):
    documented = getattr(dl, name)
    assert (inspect.getdoc(documented) or "").strip()
    # A dataclass without a docstring gets its signature as one.
    assert not inspect.getdoc(documented).startswith(f"{name}(")


@pytest.mark.parametrize("module", [dl.costs, dl.nets], ids=["costs", "nets"])
def test_every_public_function_of_a_public_module_is_documented(module):
    own = [
        value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    assert own
    assert [value for value in own if not value.__doc__] == []


REFERENCE = "\n".join(page.read_text() for page in sorted(ROOT.glob("docs/api/*.md")))


@pytest.mark.parametrize("name", dl.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert f"\n::: directloss.{name}\n" in REFERENCE


def commands(app, *before):
    """Every command, with the group it is in."""
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], *before, name)
            if not any(not below.startswith("-") for below in app[name]):
                yield " ".join([*before, name])


@pytest.mark.parametrize("command", ["directloss " + command for command in commands(app)])
def test_every_command_is_explained_with_an_example(command):
    page = (ROOT / "docs/commands.md").read_text()
    assert re.search(rf"^{command}( |$)", page, re.MULTILINE)
    assert re.search(rf"^## {command}$|`{command}`", page, re.MULTILINE)


SHELL = [
    pytest.param(line, id=f"{page.relative_to(ROOT)}-{line}")
    for page in PAGES
    for line in re.findall(r"^(?:    )?(directloss .*)$", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("line", SHELL)
def test_shell_examples_are_valid_commands(line):
    app.parse_args(shlex.split(line, comments=True)[1:], exit_on_error=False, print_error=False)
