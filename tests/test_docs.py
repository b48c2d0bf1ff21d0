"""What the documents promise: examples run, links lead somewhere, and every public name explains itself."""

import inspect
import re
import runpy
import shlex
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from pages import build_site

import directloss as dl
from directloss.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# An example, and what it prints where the page shows that.
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
# A block that begins with a name is a file, for others to import.
FILE = re.compile(r"# (\w+\.py)\n")
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
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": "example"}
    for block, output in examples:
        if file := FILE.match(block):
            (tmp_path / file[1]).write_text(block)
            continue
        exec(compile(block, "example", "exec"), names)
        printed = capsys.readouterr().out
        if output:
            assert printed == output


def test_the_readme_has_an_example():
    assert any("README" in example.id for example in EXAMPLES)


def test_the_readme_example_learns():
    """Its loop is worth copying: instances that it never saw get nearly the cheapest paths."""
    ((block, printed), *_) = EXAMPLE.findall((ROOT / "README.md").read_text())
    assert printed
    names = {}
    exec(block, names)
    assert names["regret"]() < 0.05
    assert names["before"] > 0.5


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
    file = "src/directloss/noise/distributions.py"
    line = HOOK["line_of"](ROOT / file, "class Gumbel")
    for folder, page, link, expected in (
        ("docs", "paper.md", f"../{file}", f"{file}.md#__span-0-{line}"),
        ("docs/api", "api/noise.md", f"../../{file}", f"../{file}.md#__span-0-{line}"),
        ("docs", "paper.md", "data.md#x", "data.md#x"),
        ("docs", "paper.md", "../results/sorting/README.md", "results/sorting.md"),
        (".", "index.md", "docs/data.md", "data.md"),
        ("docs", "paper.md", "https://example.org/data.md", "https://example.org/data.md"),
    ):
        text = f"[`class Gumbel`]({link}) and more"
        assert HOOK["rewrite"](text, ROOT / folder, page) == f"[`class Gumbel`]({expected}) and more"


@pytest.mark.parametrize("fragment", ["no such code", "import"])
def test_a_fragment_that_is_nowhere_or_twice_is_refused(fragment):
    with pytest.raises(ValueError, match=f"`{fragment}` is .* of src/directloss/noise/distributions.py"):
        HOOK["line_of"](ROOT / "src/directloss/noise/distributions.py", fragment)


def test_every_equation_table_and_figure_of_the_paper_has_a_row():
    """Its LaTeX source numbers 44 equations, 4 tables, 4 figures, 4 theorems and 4 corollaries."""
    rows = " ".join(re.findall(r"^\| ([^|]*) \|", (ROOT / "docs/paper.md").read_text(), re.MULTILINE))
    for kind, count in (("equation", 44), ("table", 4), ("figure", 4), ("theorem", 4), ("corollar(?:y|ie)", 4)):
        found = set()
        for first, joint, last in re.findall(rf"{kind}s? (\d+)(?: (and|to) (\d+))?", rows):
            found |= {int(first), int(last or first), *(range(int(first), int(last)) if joint == "to" else ())}
        assert found == set(range(1, count + 1)), kind


@pytest.mark.parametrize("folder", ["decisions", "structures"])
def test_every_page_of_a_folder_is_in_its_index(folder):
    index = (ROOT / "docs" / folder / "README.md").read_text()
    pages = [page.name for page in (ROOT / "docs" / folder).glob("*.md") if page.name != "README.md"]
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
        if not name.startswith("_") and str(getattr(value, "__module__", None)).startswith(module.__name__)
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


class Links(HTMLParser):
    """What a page loads, where it leads, and the anchors it has."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.leads, self.anchors = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "href":
                # A canonical or neighbouring page is named, not loaded.
                named = tag == "a" or dict(attributes).get("rel") in ("canonical", "prev", "next")
                (self.leads if named else self.loads).add(value)
            elif name in ("src", "srcset", "data", "poster", "action", "xlink:href"):
                self.loads.add(value)
            elif name == "style":
                self.loads |= set(re.findall(r"url\((.*?)\)", value))
            elif name in ("id", "name"):
                self.anchors.add(value)


def test_the_site_builds_asks_no_server_for_anything_and_its_links_lead_somewhere(tmp_path):
    """But for what the theme's script loads: tests/browser looks at that."""
    build_site(tmp_path)
    pages = {path: Links(path.read_text()) for path in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        assert {url for url in page.loads if urlsplit(url).netloc} == set()
        for url in page.leads | page.loads:
            parts = urlsplit(url)
            if path.name == "404.html" or parts.scheme or parts.netloc:
                continue  # the one page that cannot know where it is, and addresses elsewhere
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(tmp_path)} leads to {url}"
            if parts.fragment and target in pages:
                assert parts.fragment in pages[target].anchors, f"{path.relative_to(tmp_path)} leads to {url}"
    for sheet in tmp_path.rglob("*.css"):
        text = sheet.read_text()
        assert re.findall(r"@import|url\([\"']?(?:https?:)?//", text) == []
    # The theme's script would ask for these parts elsewhere.
    assert [path for path in pages if re.search(r'class="mermaid"|data-md-component="source"', path.read_text())] == []
