"""``dl.compare``: which loss makes the best decisions, on your own data?"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss.lab import standings
from directloss.lab.contest_figures import draw_standings, standing_points
from directloss.lab.experiment import Context, Drawing, Experiment
from directloss.lab.fingerprint import fingerprint
from directloss.lab.fit import Plan, fit
from directloss.lab.methods import METHODS, Method, as_method
from directloss.lab.problem import Instances, Metric, Problem, normalized_regret
from directloss.lab.result import Result
from directloss.lab.run import train_missing
from directloss.lab.store import Row, Store
from directloss.lab.workers import Workers
from directloss.structures.base import Structure

_ADAM = partial(torch.optim.Adam, lr=1e-2)


@dataclass(frozen=True)
class Trial:
    """What tells one training of a comparison from another."""

    loss: str
    what: str  # a fingerprint of everything that is the same for all losses
    how: str  # and one of the loss


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Every training, a row each, and what they say."""

    @property
    def best(self) -> str | None:
        """The loss that is better than every other one; None if that cannot be told."""
        return next((line["loss"] for line in self.table.lines if line["best"]), None)

    @property
    def verdict(self) -> str:
        """The same as a sentence, with the paired difference to the best rival."""
        return " ".join(self.experiment.notes(self.rows))


def compare(
    net: Callable[[], nn.Module],
    data: Sequence[Tensor],
    structure: Structure | Callable[..., Structure],
    losses: Mapping[str, Any] | Sequence[str] = ("direct", "spo+", "fenchel-young", "least-squares"),
    *,
    seeds: Iterable[int] = range(10),
    epochs: int = 20,
    seconds: float | None = None,
    batch: int = 32,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = _ADAM,
    rate_end: float = 1.0,
    warm_start: int = 0,
    validation: float = 0.2,
    test: float | Sequence[Tensor] = 0.25,
    metric: Callable[[Tensor, Tensor, Structure], Tensor] | None = None,
    store: str | Path | None = None,
    jobs: int = 1,
) -> Comparison:
    """Train your net with several losses under the same seeds, and say which one makes the best decisions.

    For each seed the instances are shuffled into training, validation and test; every loss starts from the same net and
    sees the same batches; the epoch that does best in validation is tested. Losses are told apart by the paired
    differences over seeds. Needs the extra ``lab``.

    Args:
        net: makes a net, features -> scores. Scores predict ``-cost``, because structures maximise.
        data: features (N, ...), costs (N, *E) that are minimised, and any data of the structure (N, ...).
        structure: what is decided on, or a function that makes it of a batch's data of the structure.
        losses: names of ours, or a name for each of your own: a function ``loss(scores, cost, structure,
            generator=g)`` or a criterion such as ``dl.DirectLoss(structure)``, copied for every training.
        seeds: a training for each loss and seed.
        epochs: of every training; all losses have the same.
        seconds: of every training, instead of epochs: expensive losses then get fewer steps.
        batch: instances a step.
        optimizer: makes an optimiser of parameters. Default Adam at 1e-2.
        rate_end: the share of the learning rate that is left in the end, to which it falls linearly.
        warm_start: so many of the epochs are least squares, for all losses.
        validation: the share that chooses the epoch; with 0 the last epoch is tested.
        test: the share that is tested, or instances of their own, as in ``data``.
        metric: what is measured, ``metric(scores, cost, structure)``, lower is better. Default: the regret, as a share
            of the best costs.
        store: a file that keeps every finished training; the same call goes on where it was.
        jobs: processes.

    Example:
        >>> import torch, directloss as dl
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> cost = (x @ torch.tensor([[2.0, -1, 0, 1], [0, 2, 1, -1], [1, 1, -2, 0]])).exp()
        >>> losses = {
        ...     "squares": "least-squares",
        ...     "direct": lambda s, c, y, **g: dl.direct_loss(s, c, y, epsilon=-1.0, **g),
        ... }
        >>> found = dl.compare(lambda: torch.nn.Linear(3, 4), (x, cost), dl.Choice(), losses, seeds=range(3), epochs=5)
        >>> [(line["loss"], line["n"]) for line in found.table.lines]
        [('direct', 3), ('squares', 3)]
    """
    chosen = {name: as_method(name, one) for name, one in _named(losses).items()}
    numbers = list(seeds)
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"seeds are {numbers}, expected one or more different whole numbers")
    everyone = _instances(data, "data")
    apart = None if isinstance(test, int | float) else _instances(test, "test")
    held = 0.0 if apart is not None else float(test)  # type: ignore[arg-type]
    if not 0 <= validation < 1 or not 0 <= held < 1 or validation + held >= 1 or (apart is None and not held):
        raise ValueError(f"validation is {validation} and test {test}; expected shares that leave some for training")
    if not 0 <= rate_end <= 1:
        raise ValueError(f"rate_end is {rate_end}, expected a share between 0 and 1")
    plan = Plan(optimizer, epochs, seconds, batch, warm_start, rate_end=rate_end)
    measured = (
        {"regret": Metric(normalized_regret)} if metric is None else {"metric": Metric(_given(metric), percent=False)}
    )

    def problem(seed: int) -> Problem:
        order = torch.randperm(len(everyone), generator=torch.Generator().manual_seed(seed))
        ends = [round(len(order) * held), round(len(order) * (held + validation))]
        tested, validated, trained = (everyone[part] for part in torch.tensor_split(order, ends))
        return Problem(net, structure, trained, apart or tested, validated if len(validated) else None, measured)

    how = (epochs, seconds, batch, optimizer, rate_end, warm_start)
    what = fingerprint(net, data, structure, *how, validation, test, metric)
    experiment = Experiment(
        name="compare",
        command="compare",
        title="Losses compared",
        text="",
        config=Trial,
        train=partial(_train, chosen, problem, plan),
        columns=standings.columns(),
        lines=lambda rows: standings.lines(rows, _anywhere, lambda row: chosen[row["loss"]].sees),
        measured=standings.measured,
        notes=lambda rows: standings.verdicts(rows, _anywhere),
        figures=(
            Drawing("regret", "", partial(draw_standings, place=_anywhere), partial(standing_points, place=_anywhere)),
        ),
    )
    trials = [Trial(name, what, fingerprint(vars(method))) for name, method in chosen.items()]
    with tempfile.TemporaryDirectory() as folder, closing(Store(Path(store or f"{folder}/rows.sqlite"))) as saved:
        train_missing(experiment, trials, numbers, saved, Workers(jobs), Context(threads=None if jobs == 1 else 1))
        rows = [row for trial in trials for row in saved.rows_of(experiment.key(trial)) if row.repetition in numbers]
    return Comparison(experiment, rows)


def _train(
    methods: Mapping[str, Method],
    problem: Callable[[int], Problem],
    plan: Plan,
    trial: Trial,
    seeds: Sequence[int],
    context: Context,
) -> Iterator[tuple[int, dict[str, Any]]]:
    for seed in seeds:
        yield seed, fit(problem(seed), methods[trial.loss], plan, seed, context.progress)


def _named(losses: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    found = dict(losses) if isinstance(losses, Mapping) else {name: name for name in losses}
    if not found:
        raise ValueError(f"losses is empty; give some of {', '.join(METHODS)}, or your own by name")
    return found


def _instances(data: Sequence[Tensor], name: str) -> Instances:
    if len(data) < 2 or len({len(tensor) for tensor in data}) != 1:
        sizes = [tuple(tensor.shape) for tensor in data]
        raise ValueError(f"{name} has shapes {sizes}; expected features, costs and data of the structure, N of each")
    features, cost, *given = data
    return Instances(features, cost, tuple(given))


def _anywhere(row: Row) -> str:
    """All losses of a comparison meet in one place."""
    return ""


def _given(metric: Callable[[Tensor, Tensor, Structure], Tensor]) -> Callable[[Tensor, Instances, Structure], Tensor]:
    return lambda scores, instances, structure: metric(scores, instances.cost, structure)
