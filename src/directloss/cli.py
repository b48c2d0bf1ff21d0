"""The command line: dispatch only. Heavy modules are imported by the command that needs them."""

import re
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, Token, convert

from directloss import __version__
from directloss.errors import UserError


def _strictly(hint: Any, tokens: Sequence[Token]) -> Any:
    """What cyclopts makes of an option, but whole numbers are whole: it would round 3.5."""
    text = tokens[0].value
    if hint is int and not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ValueError(f"{text!r} is no whole number of at most 18 digits.")
    return convert(hint, [token.value for token in tokens])


app = App(
    name="directloss",
    default_parameter=Parameter(converter=_strictly),
    help="Train networks through discrete decisions.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
results = App(name="results", help="List, export or delete saved results.")
app.command(results)
data = App(name="data", help="List, download or check the image data sets.")
app.command(data)

StorePath = Annotated[Path, Parameter(help="Results file.")]
DataDir = Annotated[Path | None, Parameter(help="Default $DIRECTLOSS_DATA_DIR, then ~/.cache/directloss.")]


@app.command
def sort(
    *,
    sizes: Annotated[str | None, Parameter(help="How many numbers, with commas. Default 5,10,25,40,60,100.")] = None,
    methods: Annotated[
        str | None, Parameter(help="Of direct0, direct1, dsl, gumbel-sinkhorn, with commas. Default all.")
    ] = None,
    recipe: Annotated[str | None, Parameter(help="paper (default) or best.")] = None,
    repetitions: Annotated[int | None, Parameter(help="Trainings for each cell. Default 200.")] = None,
    seed: Annotated[int | None, Parameter(help="Default 0.")] = None,
    cost: Annotated[str | None, Parameter(help="Replaces the recipe's, e.g. squared-error or rank-distance.")] = None,
    samples: Annotated[int | None, Parameter(help="Noise draws for each sequence; replaces the recipe's.")] = None,
    epsilon: Annotated[float | None, Parameter(help="Replaces the recipe's.")] = None,
    epochs: Annotated[int | None, Parameter(help="At most; replaces the recipe's.")] = None,
    fresh: Annotated[bool | None, Parameter(help="Draw new training sequences at every step.")] = None,
    jobs: Annotated[int | None, Parameter(help="Processes. Default 1.")] = None,
    threads: Annotated[int | None, Parameter(help="Threads in each process. Default 1.")] = None,
    executor: Annotated[str | None, Parameter(help="local (default) or dask.")] = None,
    address: Annotated[str | None, Parameter(help="Of the dask scheduler, e.g. tcp://host:8786.")] = None,
    store: Annotated[str | None, Parameter(help="Results file. Default directloss.sqlite.")] = None,
    output: Annotated[str | None, Parameter(help="Folder for rows.csv and table.md.")] = None,
    json: Annotated[bool | None, Parameter(help="Print the table as one JSON list.")] = None,
    config: Annotated[Path | None, Parameter(help="TOML file with defaults in a [sort] table.")] = None,
) -> None:
    """Learn to sort by matching: tables 1 and 2 of the paper."""
    given = {name: value for name, value in locals().items() if name != "config"}
    from directloss.experiments import sort_command

    sort_command.run(given, config)


@app.command
def knn(
    *,
    data: Annotated[str, Parameter(help="Of mnist, fashion-mnist, cifar-10, digits, with commas.")] = "mnist",
    k: Annotated[str, Parameter(help="Neighbours, with commas.")] = "5",
    methods: Annotated[
        str,
        Parameter(help="Of direct0, direct1, dsl, neuralsort, neuralsort-stochastic, relaxsubsample, with commas."),
    ] = "dsl",
    net: Annotated[str | None, Parameter(help="lenet, resnet9 or resnet18. Default by the data.")] = None,
    recipe: Annotated[str, Parameter(help="paper or best.")] = "best",
    seed: Annotated[str, Parameter(help="One or more, with commas.")] = "0",
    epochs: Annotated[int | None, Parameter(help="Replaces the recipe's.")] = None,
    candidates: Annotated[int | None, Parameter(help="In a batch; replaces the recipe's.")] = None,
    queries: Annotated[int | None, Parameter(help="In a batch, besides; 0 lets all candidates be queries.")] = None,
    width: Annotated[int | None, Parameter(help="Of a resnet9.")] = None,
    learning_rate: Annotated[float | None, Parameter(help="Of the net; replaces the recipe's.")] = None,
    epsilon: Annotated[float | None, Parameter(help="Replaces the recipe's.")] = None,
    sides: Annotated[str | None, Parameter(help="one or both, of the direct loss. Default by the recipe.")] = None,
    threads: Annotated[int | None, Parameter(help="Default: torch's.")] = None,
    data_dir: Annotated[
        Path | None, Parameter(help="Image files. Default $DIRECTLOSS_DATA_DIR, then ~/.cache/directloss.")
    ] = None,
    store: StorePath = Path("directloss.sqlite"),
    checkpoints: Annotated[Path, Parameter(help="Folder to resume from.")] = Path("checkpoints"),
    output: Annotated[Path | None, Parameter(help="Folder for rows.csv, curves and table.md.")] = None,
    json: Annotated[bool, Parameter(help="Print the table as one JSON list.")] = False,
) -> None:
    """Learn an embedding whose k nearest neighbours carry the right label: tables 3 and 4 of the paper."""
    from directloss.experiments import knn_command

    options = knn_command.Options(
        data, k, methods, net, recipe, seed, epochs, candidates, queries, width, learning_rate, epsilon, sides, threads
    )
    knn_command.run(options, data_dir, store, checkpoints, output, json)


@app.command
def dynamics(
    *,
    sizes: Annotated[str, Parameter(help="How many numbers, with commas.")] = "10,100",
    methods: Annotated[str, Parameter(help="Of direct0, direct1, dsl, with commas.")] = "dsl",
    recipe: Annotated[str, Parameter(help="paper or best.")] = "paper",
    repetitions: Annotated[int, Parameter(help="Trainings to average.")] = 10,
    epochs: int = 200,
    seed: int = 0,
    store: StorePath = Path("directloss.sqlite"),
    output: Annotated[Path, Parameter(help="Folder for dynamics.csv, .svg and .png.")] = Path("."),
) -> None:
    """Trace how sorting is learned with both signs of epsilon: figure 3 of the paper."""
    from directloss.experiments import dynamics as traces
    from directloss.experiments.sort_command import Options, read_cells

    options = Options(sizes, methods, recipe, repetitions, seed, epochs=epochs)
    traces.run(read_cells(options), repetitions, store, output)


@app.command
def audit(
    *,
    structure: Annotated[str, Parameter(help="matching, subset or choice.")] = "matching",
    size: Annotated[int, Parameter(help="Of the structure; all of its structures are enumerated.")] = 3,
    k: Annotated[int, Parameter(help="How many of size, for a subset.")] = 2,
    scales: Annotated[str, Parameter(help="Of the noise, with commas.")] = "1",
    epsilons: Annotated[str, Parameter(help="With commas, both signs. Default: chosen from the losses.")] = "",
    samples: Annotated[str, Parameter(help="Noise draws for each call, with commas.")] = "1",
    repetitions: Annotated[int, Parameter(help="Calls for each setting.")] = 300_000,
    seed: Annotated[int, Parameter(help="Of scores and noise.")] = 0,
    store: StorePath = Path("directloss.sqlite"),
    output: Annotated[Path, Parameter(help="Folder for audit.csv, .svg and .png.")] = Path("."),
    json: Annotated[bool, Parameter(help="Print the rows as one JSON list.")] = False,
) -> None:
    """Compare the direct loss's gradients with exact ones: bias, variance, direction and cost."""
    from directloss.experiments import audit_command

    options = audit_command.Options(structure, size, k, scales, epsilons, samples, repetitions, seed)
    audit_command.run(options, store, output, json)


@app.command
def distribution(
    *,
    store: StorePath = Path("directloss.sqlite"),
    output: Annotated[Path, Parameter(help="Folder for distribution.csv, .svg and .png.")] = Path("."),
) -> None:
    """Show how the noise's scale spreads the predictions, beside Gibbs: figure 1 of the paper."""
    from directloss.experiments import distribution as spread

    spread.run(spread.INSTANCES, store, output)


@app.command
def report(
    *,
    store: StorePath = Path("directloss.sqlite"),
    output: Annotated[Path, Parameter(help="The page to write.")] = Path("report.html"),
) -> None:
    """Show everything a store holds on one HTML page, with a playground."""
    from directloss.report.build import build

    build(store, output)


@results.command(name="list")
def list_results(*, store: StorePath = Path("directloss.sqlite")) -> None:
    """Show what a store holds, a line for each configuration."""
    from directloss.experiments import results_command

    results_command.show(store)


@results.command
def export(
    *,
    store: StorePath = Path("directloss.sqlite"),
    form: Annotated[str, Parameter(name="--format", help="csv or json.")] = "csv",
    output: Annotated[Path | None, Parameter(help="File; standard output without it.")] = None,
) -> None:
    """Write every repetition with its configuration."""
    from directloss.experiments import results_command

    results_command.export(store, form, output)


@results.command
def delete(
    key: Annotated[str, Parameter(help="The start of a configuration's hash, at least 4 characters.")],
    *,
    store: StorePath = Path("directloss.sqlite"),
) -> None:
    """Delete the repetitions of a configuration."""
    from directloss.experiments import results_command

    results_command.delete(store, key)


@data.command(name="list")
def list_data(*, data_dir: DataDir = None) -> None:
    """Show the data sets, and which of them are there."""
    from directloss.data import command

    command.show(data_dir)


@data.command
def fetch(*names: Annotated[str, Parameter(help="Data sets, or all.")], data_dir: DataDir = None) -> None:
    """Make data sets ready: download what is missing, check it, decode it."""
    from directloss.data import command

    command.fetch(names, data_dir)


@data.command
def verify(*names: Annotated[str, Parameter(help="Data sets; all without it.")], data_dir: DataDir = None) -> None:
    """Compare every file that is there with its published checksum."""
    from directloss.data import command

    command.verify(names, data_dir)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. What the user can put right is one line on standard error and exit code 2."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(f"{' '.join(str(error).split())} See directloss --help.")
    except UserError as error:
        _fail(str(error))
    except sqlite3.Error as error:
        _fail(f"the results store failed ({error}); check its disk, or give another --store path")
    except KeyboardInterrupt:
        print("directloss: stopped; the same command goes on where it was", file=sys.stderr)
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    print(f"directloss: {message}", file=sys.stderr)
    sys.exit(2)
