"""Running an experiment: train what the store lacks, save it as it finishes, show and write what was asked for."""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from directloss.errors import UserError
from directloss.lab.command import STORE, configured, make_app, run_app
from directloss.lab.experiment import Context, Experiment, Train, load
from directloss.lab.options import Option
from directloss.lab.result import Result
from directloss.lab.store import Store
from directloss.lab.workers import Workers, fan_out

Task = tuple[Experiment, Any, list[int], Context]
_ANY = Option("", least=1)


def as_command(experiment: Experiment, commands: Sequence[str]) -> Callable[..., None]:
    """The function behind an experiment's command."""

    def command(**given: Any) -> None:
        result, output, store = run(experiment, **given), given.get("output"), given.get("store", STORE)
        if not _first(experiment):
            return
        if output:
            result.write(output)
        if given.get("json"):
            print(result.table.to_json())
        else:
            result.print()
            print(f"Rows: {store}" + (f", tables: {output}" if output else ""))
        if given.get("report"):
            from directloss.lab.report.build import build

            build(store, given["report"], [experiment])

    signature = experiment.signature()
    command.__name__, command.__doc__ = experiment.command, experiment.text
    command.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
    vars(command)["__signature__"] = signature
    return configured(experiment.command, commands)(command)


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> None:
    """An experiment as a program of its own: ``python my_experiment.py --help``."""
    app = make_app(name=experiment.command, help=experiment.text, version_flags=[])
    app.default(as_command(experiment, [experiment.command]))
    run_app(app, arguments)


def run(experiment: Experiment, **given: Any) -> Result:
    """Train what the store lacks of what these options of the command ask for; return all of that.

    ``run(declared("sort"), sizes="5,10", repetitions=3)`` is ``directloss sort --sizes 5,10 --repetitions 3``.
    """
    cells = experiment.cells(**given)
    count = given.get("repetitions", experiment.repetitions) if experiment.repetitions is not None else 1
    jobs, threads = given.get("jobs", 1), given.get("threads", experiment.threads)
    for name, value in (("repetitions", count), ("jobs", jobs), ("threads", threads)):
        if value is not None:
            _ANY.check(name, value)
    Option("", of=lambda: ("local", "dask")).check("executor", given.get("executor", "local"), listed=True)
    workers = Workers(jobs, given.get("executor", "local"), given.get("address"))
    if workers.executor == "dask":
        workers.connect().close()
    settings = {name: given.get(name, default) for name, (_, default, _) in experiment.settings.items()}
    context = Context(threads if workers.alone else threads or 1, settings=settings)
    load(experiment.check)(cells, context)
    folders = filter(None, (given.get("output"), settings.get("checkpoints")))
    with closing(open_store(given.get("store", STORE), *folders)) as store:
        train_missing(experiment, cells, count, store, workers, context, save=_first(experiment))
        found = [row for cell in cells for row in store.rows_of(experiment.key(cell)) if row.repetition < count]
    return Result(experiment, found)


def _first(experiment: Experiment) -> bool:
    """Whether this process is the one of torchrun's that saves and shows."""
    return not (experiment.ranks and int(os.environ.get("RANK", "0")))


def open_store(path: Path, *folders: Path) -> Store:
    """The store and the folders of an experiment, early, so that nobody waits for results that have no place to go.

    If one of them cannot be made, none is left behind.
    """
    made: list[Path] = []
    try:
        for folder in folders:
            missing = [part for part in (folder, *folder.parents) if not part.exists()]
            for part in reversed(missing):
                part.mkdir(exist_ok=True)
                made.append(part)
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return Store(path)
    except (OSError, UserError) as error:
        for part in reversed(made):
            with suppress(OSError):  # another process may use it by now
                part.rmdir()
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot write to the folder {folder}: {error.strerror}; give another path") from error


def train_missing(
    experiment: Experiment,
    cells: Sequence[Any],
    repetitions: int | Sequence[int],
    store: Store,
    workers: Workers = Workers(),
    context: Context = Context(),
    save: bool = True,
) -> None:
    """Train what is missing of the first ``repetitions`` of every cell, or of those named; save it as it finishes."""
    wanted = range(repetitions) if isinstance(repetitions, int) else repetitions
    tasks: list[Task] = []
    folder = Path(context.settings.get("checkpoints") or ".")
    for cell in dict.fromkeys(cells):
        key = experiment.key(cell)
        finished = store.finished(key)
        missing = [number for number in wanted if number not in finished]
        older = folder / f"{key.whole}.pt"
        own = replace(context, checkpoint=older if older.exists() else folder / f"{key}.pt")
        size = experiment.stack(cell)
        tasks += [(experiment, cell, missing[first : first + size], own) for first in range(0, len(missing), size)]
    if not workers.alone:  # the longest first, so that no worker is left alone with it
        tasks.sort(key=lambda task: -experiment.weight(task[1]) * len(task[2]))
    with progress(experiment, tasks, visible=save and sys.stderr.isatty()) as report:
        for index, results in _results(tasks, workers, report):
            if save:
                store.add(experiment.key(tasks[index][1]), results)


def _results(
    tasks: Sequence[Task], workers: Workers, report: Callable[[int, float, str], None]
) -> Iterator[tuple[int, list[tuple[int, dict[str, Any]]]]]:
    """Results of the tasks as they finish; here, those of one task within a second of each other come together."""
    if workers.alone:
        for index, (experiment, cell, numbers, context) in enumerate(tasks):
            told = replace(context, progress=partial(report, index))
            _use_threads(context)
            held, last = [], time.monotonic()
            for result in load(experiment.train)(cell, numbers, told):
                held.append(result)
                if time.monotonic() > last + 1:
                    yield index, held
                    held, last = [], time.monotonic()
            yield index, held
            report(index, 1.0, "")
    elif tasks:
        plain = [
            (experiment.train, cell, numbers, context, os.getcwd()) for experiment, cell, numbers, context in tasks
        ]
        for index, results in fan_out(_work, plain, workers):
            yield index, results
            report(index, 1.0, "")


def _work(
    train: Train | str, cell: Any, numbers: list[int], context: Context, folder: str
) -> list[tuple[int, dict[str, Any]]]:
    """A task in another process, which finds the user's modules where the command was started."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _use_threads(context)
    return list(load(train)(cell, numbers, context))


def _use_threads(context: Context) -> None:
    if context.threads:
        import torch

        torch.set_num_threads(context.threads)


@contextmanager
def progress(
    experiment: Experiment, tasks: Sequence[Task], visible: bool
) -> Iterator[Callable[[int, float, str], None]]:
    """A bar over all that is asked for, weighted with what it costs, with the time left."""
    if not visible:
        yield lambda index, share, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    weights = [len(numbers) * experiment.weight(cell) for _, cell, numbers, _ in tasks]
    labels = [experiment.label(cell) for _, cell, _, _ in tasks]
    shares = [0.0] * len(tasks)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False))
    with Progress(*columns, *times, console=Console(stderr=True), speed_estimate_period=600) as bar:
        task = bar.add_task(experiment.command, total=sum(weights))

        def report(index: int, share: float, note: str) -> None:
            shares[index] = share
            complete = sum(weight * part for weight, part in zip(weights, shares, strict=True))
            bar.update(task, completed=complete, description=f"{labels[index]} {note}".strip())

        yield report
