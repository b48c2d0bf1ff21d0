"""The command line: one loop over the experiments, and what is done with their results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from directloss import __version__
from directloss.experiments import COMMANDS, DECLARED
from directloss.lab.command import STORE, StorePath, configured, make_app, run_app

DataDir = Annotated[Path | None, Parameter(help="Default $DIRECTLOSS_DATA_DIR, then ~/.cache/directloss.")]

app = make_app(name="directloss", help="Train networks through discrete decisions.", version=__version__)
results = make_app(name="results", help="List, export, import or delete saved results.")
data = make_app(name="data", help="List, download or check the image data sets.")
for name, (_, text) in DECLARED.items():
    app.command(f"directloss.experiments.commands:{name}", name=name, help=text)
app.command(results)
app.command(data)


@app.command
@configured("report", COMMANDS)
def report(
    *,
    store: StorePath = STORE,
    output: Annotated[Path, Parameter(help="The page to write.")] = Path("report.html"),
) -> None:
    """Show everything a store holds on one HTML page, with a playground."""
    from directloss.experiments import all_declared, speed
    from directloss.lab.report.build import build

    build(store, output, all_declared(), {"speed": speed.section})


@results.command(name="list")
@configured("results list", COMMANDS)
def list_results(*, store: StorePath = STORE) -> None:
    """Show what a store holds, a line for each configuration."""
    from directloss.experiments import all_declared
    from directloss.lab.results import show

    show(store, all_declared())


@results.command
@configured("results export", COMMANDS)
def export(
    *,
    store: StorePath = STORE,
    format: Annotated[str, Parameter(help="csv or json.")] = "csv",  # noqa: A002
    output: Annotated[Path | None, Parameter(help="File; standard output without it.")] = None,
) -> None:
    """Write every repetition with its configuration."""
    from directloss.lab.results import export

    export(store, format, output)


@results.command(name="import")
@configured("results import", COMMANDS)
def import_results(
    file: Annotated[Path, Parameter(help="What results export --format json wrote.")],
    *,
    store: StorePath = STORE,
) -> None:
    """Add the repetitions of a file to a store; those that are there stay as they are."""
    from directloss.experiments import all_declared
    from directloss.lab.results import load

    load(store, file, all_declared())


@results.command
@configured("results delete", COMMANDS)
def delete(
    key: Annotated[str, Parameter(help="The start of a configuration's hash, at least 4 characters.")],
    *,
    store: StorePath = STORE,
) -> None:
    """Delete the repetitions of a configuration."""
    from directloss.lab.results import delete

    delete(store, key)


@data.command(name="list")
@configured("data list", COMMANDS)
def list_data(*, data_dir: DataDir = None) -> None:
    """Show the data sets, and which of them are there."""
    from directloss.data import command

    command.show(data_dir)


@data.command
@configured("data fetch", COMMANDS)
def fetch(*names: Annotated[str, Parameter(help="Data sets, or all.")], data_dir: DataDir = None) -> None:
    """Make data sets ready: download what is missing, check it, decode it."""
    from directloss.data import command

    command.fetch(names, data_dir)


@data.command
@configured("data verify", COMMANDS)
def verify(*names: Annotated[str, Parameter(help="Data sets; all without it.")], data_dir: DataDir = None) -> None:
    """Compare every file that is there, and what was decoded from it, with its checksum."""
    from directloss.data import command

    command.verify(names, data_dir)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. What the user can put right is one line on standard error and exit code 2."""
    run_app(app, arguments)
