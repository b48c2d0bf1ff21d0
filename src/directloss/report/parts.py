"""What a section of the report is made of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from directloss.experiments import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One number of a table: what is shown large, and the lines shown small below it."""

    main: str
    small: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    caption: str
    header: Sequence[str]
    body: Sequence[tuple[str, Sequence[Cell]]]  # each row: its name and its cells


@dataclass(frozen=True)
class Source:
    """Where numbers come from."""

    what: str
    command: str
    seed: str
    commit: str
    spread: str


@dataclass(frozen=True)
class Section:
    """A heading with tables and figures, or the command that would fill it."""

    key: str
    title: str
    text: str
    missing: str  # the command to run
    tables: Sequence[Table] = ()
    figures: Sequence[tuple[str, str]] = ()  # SVG and its caption
    sources: Sequence[Source] = field(default_factory=list)
    note: str = ""


def inline(figure: "Figure", key: str) -> str:
    """The figure as SVG with ids of its own, because all figures share the page's, and without what is not drawn."""
    svg = figures.to_inline_svg(figure)
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", svg)


def join(values: Iterable[Any], separator: str = ",") -> str:
    """Each once, in order."""
    return separator.join(map(str, sorted(set(values))))
