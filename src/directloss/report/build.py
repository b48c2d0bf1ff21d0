"""``directloss report``: everything a store holds as one self-contained page.

A section turns rows of the store into tables and figures, with where each number comes from. A section whose
experiment is not in the store names the command that makes it.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from directloss import __version__
from directloss.errors import UserError
from directloss.experiments import summary
from directloss.files import write_atomically
from directloss.report.gradients import audit_section, distribution_section
from directloss.report.neighbors import neighbors_section
from directloss.report.parts import Rows, Section
from directloss.report.sorting import dynamics_section, sorting_section, speed_section
from directloss.runs import Store, code_version


def build(store: Path, output: Path) -> None:
    """Write the page. Nothing is written where the store is none of ours, or empty."""
    if os.path.isdir(output):  # unlike Path's, false where a path cannot be looked at
        raise UserError(f"{output} is a folder; give --output a file, e.g. {output / 'report.html'}")
    if os.path.exists(output) and os.path.exists(store) and os.path.samefile(output, store):
        raise UserError(f"--output {output} is the store itself; give another file, e.g. report.html")
    rows: dict[str, Rows] = defaultdict(list)
    with closing(Store(store, create=False)) as saved:
        for row in saved.rows():
            rows[row["experiment"]].append(row)
    if not rows:
        raise UserError(f"{store} holds no results yet; run an experiment with --store {store}")
    sections = [make(rows) for make in SECTIONS]
    write_atomically(output, render(sections))
    missing = [section.title for section in sections if not section.sources]
    print(f"Wrote {output}" + (f"; not in {store}: {', '.join(missing)}" if missing else ""))


def render(sections: Sequence[Section]) -> str:
    """The page as text."""
    import jinja2

    here = files("directloss.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["inline"] = lambda name: here.joinpath(name).read_text(encoding="utf-8")
    return environment.get_template("report.html").render(
        sections=sections,
        version=__version__,
        commit=code_version(),
        machine=summary.machine(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


SECTIONS: tuple[Callable[[dict[str, Rows]], Section], ...] = (
    sorting_section,
    speed_section,
    dynamics_section,
    neighbors_section,
    audit_section,
    distribution_section,
)
