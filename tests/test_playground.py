"""The playground is one self-contained page. What it computes is checked in a browser: ``make test-browser``."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import directloss
from directloss.report.playground import page

FOLDER = Path(directloss.__file__).parent / "report"
PARTS = {kind: (FOLDER / f"playground.{kind}").read_text("utf-8") for kind in ("css", "html", "js")}
VOID = {"input", "meta"}


class Elements(HTMLParser):
    """The elements of a page; complains where tags do not pair up."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.found if attribute in attributes]


@pytest.fixture(scope="module")
def elements() -> Elements:
    return Elements(page())


@pytest.mark.parametrize("kind", PARTS)
def test_the_page_holds_each_part(kind):
    assert PARTS[kind] in page()


def test_the_page_is_small():
    assert len(page().encode()) < 200_000


def test_the_page_loads_nothing(elements):
    assert not {"src", "href", "srcset", "action"} & {name for _, attributes in elements.found for name in attributes}
    assert not re.search(r"https?:|[\"'(=]\s*//|url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\(", page())


def test_ids_are_unique_and_references_to_them_lead_somewhere(elements):
    ids = elements.values("id")
    assert len(ids) == len(set(ids))
    assert set(elements.values("aria-labelledby")) <= set(ids)


def test_the_script_and_the_fragment_name_the_same_parts(elements):
    shown = set(re.findall(r'find\("([^"]+)"\)', PARTS["js"]))
    assert shown
    assert shown <= set(elements.values("data-part"))


@pytest.mark.parametrize("kind", PARTS)
def test_a_template_may_include_each_part(kind):
    """Nothing that jinja2 would read as its own, and no end of the element it stands in."""
    assert not re.search(r"\{\{|\{%|\{#|</(script|style)", PARTS[kind])
