"""The playground is one self-contained page. What it computes is checked in a browser: ``make test-browser``."""

import re
from pathlib import Path

import pytest
from markup import Element, parse
from playground_page import page

import directloss

FOLDER = Path(directloss.__file__).parent / "lab/report"
PARTS = {kind: (FOLDER / f"playground.{kind}").read_text("utf-8") for kind in ("css", "html", "js")}


@pytest.fixture(scope="module")
def elements() -> Element:
    return parse(page())


@pytest.mark.parametrize("kind", PARTS)
def test_the_page_holds_each_part(kind):
    assert PARTS[kind] in page()


def test_the_page_is_small():
    assert len(page().encode()) < 200_000


def test_the_page_loads_nothing(elements):
    assert not elements.values("src", "href", "srcset", "action")
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
