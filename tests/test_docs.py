"""What the documents promise: examples run, links lead somewhere, and every public name explains itself."""

import inspect
import re
from pathlib import Path

import pytest
import torch

import directloss as dl

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
