"""What the documents promise: examples run, links lead somewhere, and every public name explains itself."""

import inspect
import re
from pathlib import Path

import pytest
import torch

import directloss as dl

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]
LINKS = [
    pytest.param(page.parent / target, id=f"{page.relative_to(ROOT)}-{target}")
    for page in PAGES
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    if "://" not in target
]


@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(block, "example", "exec"), {"__name__": "example"})


def test_the_readme_has_an_example():
    assert any("README" in example.id for example in EXAMPLES)


def test_the_readme_example_learns():
    """Its loop is worth copying: the training sequences end up sorted."""
    (block, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
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
