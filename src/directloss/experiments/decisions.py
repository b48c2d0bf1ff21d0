"""Predict, then optimise: which loss makes the best decisions? ``directloss decide``.

Each task is a file in ``tasks/`` and an entry of its ``TASKS``; losses are ``lab/methods.py``'s, the tuned direct loss
with constants of its own for each task, and LightGBM's two for ranking.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.errors import UserError
from directloss.experiments.tasks import TASKS
from directloss.lab import contest_figures, standings
from directloss.lab.experiment import Context, Drawing, Experiment, load
from directloss.lab.options import load_own, option
from directloss.lab.table import Column

if TYPE_CHECKING:
    from directloss.lab.fit import Plan
    from directloss.lab.methods import Method

# What the hands-free criterion is without one of its parts.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "direct-one-side": {"sides": "one"},
    "direct-symmetric": {"sides": "both"},
    "direct-scale-0": {"scale": 0.0},
    "direct-scale-1": {"scale": 1.0, "samples": 2, "noise": "normal"},
}
# In the order of the tables; the last two are for ranking alone.
LIGHTGBM = ("lambdarank", "xendcg")
LOSSES = (
    "direct",
    "direct-tuned",
    *LEFT_OUT,
    "spo+",
    "fenchel-young",
    "least-squares",
    "blackbox",
    "imle",
    "identity",
    "contrastive",
    "reinforce",
    *LIGHTGBM,
)


NETS = ("both", "linear", "mlp")
OPTIMIZERS = ("adam", "sgd")
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Config:
    """A task with its options, and how it is trained."""

    task: str = option(help="With commas.", name="tasks", of=lambda: TASKS, preset="path,knapsack,energy")
    loss: str = option(
        help="With commas.",
        name="losses",
        of=lambda: LOSSES,
        own=True,
        preset="direct,direct-tuned,spo+,fenchel-young,least-squares",
    )
    degree: int = option(0, "Of the features in the costs: 1 is linear (path, knapsack).", least=1)
    size: int = option(0, "Cells of a side (path), or items (knapsack).", least=2)
    noise: float = option(0.0, "Width of the costs' noise (path, knapsack).", least=0)
    train: int = option(0, "Training instances (path, knapsack, matching).", least=1)
    data_seed: int = option(-1, "Of the data; -1: new data for each seed (path, knapsack).", least=-1)
    capacity: int = option(0, "Of a knapsack (knapsack, energy). Default for energy: 60, 120 and 180.", least=1)
    unseen: bool = option(False, "Test on images that training has not seen (matching).")
    net: str = option("both", "Of the ranking.", of=lambda: NETS)
    epochs: int = option(20, "Of training.", least=1)
    batch: int = option(32, "Instances a step.", least=1)
    rate: float = 1e-2
    rate_end: float = option(1.0, "The share of the learning rate that is left in the end.", least=0, most=1)
    epochs_times: float = option(1.0, "Train so many times as long.", above=0, preset=1.0)
    rate_times: float = option(1.0, "Learn so many times as fast.", above=0, preset=1.0)
    scores_times: float = option(1.0, "Multiply the initial scores.", above=0, preset=1.0)
    optimizer: str = option("adam", "Sgd has momentum 0.9.", of=lambda: OPTIMIZERS, preset="adam")
    warm_start: int = option(0, "Epochs of least squares first.", least=0, preset=0)
    seed: int = option(0, "The first of the seeds.", least=0, preset=0)

    def plan(self) -> "Plan":
        from functools import partial

        from torch import optim

        from directloss.lab.fit import Plan

        rate = self.rate * self.rate_times
        optimizer = (
            partial(optim.Adam, lr=rate)
            if self.optimizer == "adam"
            else partial(optim.SGD, lr=rate, momentum=_MOMENTUM)
        )
        epochs = max(1, round(self.epochs * self.epochs_times))
        return Plan(
            optimizer,
            epochs,
            batch=self.batch,
            warm_start=self.warm_start,
            rate_end=self.rate_end,
            scores=self.scores_times,
        )


_ANY_TASK = (
    "epochs",
    "batch",
    "rate_end",
    "epochs_times",
    "rate_times",
    "scores_times",
    "optimizer",
    "warm_start",
    "seed",
)


def published(task: str, loss: str) -> Config:
    """The settings that a task was published with."""
    return Config(task, loss, **TASKS[task].preset)


def adjust(config: Config, **overrides: Any) -> Config:
    """Only options that the task knows."""
    for name in overrides:
        if name not in TASKS[config.task].options and name not in _ANY_TASK:
            fits = [task for task, one in TASKS.items() if name in one.options]
            raise ValueError(f"--{name.replace('_', '-')} is not for the task {config.task}, but for {', '.join(fits)}")
    return replace(config, **overrides)


def expand(config: Config) -> list[Config]:
    """Every capacity and net that is to be tried.

    LightGBM only ranks, and stands beside either net. A pool of solutions does not know lists of unequal length.
    """
    if (config.task == "ranking" and config.loss == "contrastive") or (
        config.task != "ranking" and config.loss in LIGHTGBM
    ):
        return []
    cells = [config]
    for name, values in TASKS[config.task].several.items():
        unset = Config.__dataclass_fields__[name].default
        cells = [
            replace(cell, **{name: value})
            for cell in cells
            for value in (values if getattr(cell, name) == unset else [getattr(cell, name)])
        ]
    return cells


def method(config: Config) -> "Method":
    """The loss of a configuration."""
    from directloss.lab.methods import METHODS, Method
    from directloss.noise import Normal

    given = {"direct-tuned": TASKS[config.task].tuned, **LEFT_OUT}.get(config.loss)
    if given is not None:
        settings = {**given, **({"noise": Normal()} if "noise" in given else {})}
        return (
            Method("direct_loss", settings=settings)
            if config.loss == "direct-tuned"
            else Method("DirectLoss", "criterion", settings=settings)
        )
    return METHODS[config.loss] if config.loss in METHODS else Method(load_own(config.loss))


def sees(row: Any) -> str:
    """What supervision a loss uses. The Hamming loss of a matching knows the best one, not what others cost."""
    from directloss.lab.methods import BEST, FULL, METHODS

    loss = row["loss"]
    known = METHODS[loss].sees if loss in METHODS else FULL
    return BEST if row["task"] == "matching" and known == FULL and loss != "least-squares" else known


def check(cells: Sequence[Config], context: Context) -> None:
    """That every loss exists, and the data are there, before anything is trained."""
    import directloss

    for cell in cells:
        rule = None if cell.loss in LIGHTGBM else method(cell).rule
        if isinstance(rule, str) and rule not in directloss.__all__:
            raise UserError(f"--losses has {cell.loss!r}, whose dl.{rule} this version does not have")
    for cell in {cell.task: cell for cell in cells}.values():
        load(TASKS[cell.task].make)(cell, 0, context.settings.get("data_dir"))


def train(config: Config, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    from directloss.lab.fit import fit

    for number in repetitions:
        seed = config.seed + number
        problem = load(TASKS[config.task].make)(config, seed, context.settings.get("data_dir"))
        if config.loss in LIGHTGBM:
            from directloss.experiments.tasks.ranking import boost

            yield number, boost(problem, config.loss, seed)
        else:
            yield number, fit(problem, method(config), config.plan(), seed, context.progress)


def place(row: Any) -> str:
    """The task with its options, which losses are compared within."""
    return _place(Config(**row.config))


@cache
def _place(config: Config) -> str:
    about = {
        "path": f"{config.size}x{config.size}, degree {config.degree}",
        "knapsack": f"{config.size} items, degree {config.degree}",
        "energy": f"capacity {config.capacity}",
        "ranking": config.net,
    }.get(config.task, "")
    shown = {"size", "degree", "capacity", "net"}
    changes = EXPERIMENT.named_changes(config)
    others = [f"{name.replace('_', ' ')} {value}" for name, value in changes.items() if name not in shown]
    return ", ".join(filter(None, [config.task, about, *others]))


EXPERIMENT = Experiment(
    name="decisions",
    command="decide",
    title="Predict, then optimise: decisions by loss",
    text="Train a net that predicts costs through the decision that they lead to, and compare losses by the regret of "
    "decisions on unseen instances: shortest paths and knapsacks of PyEPO, real energy prices, web search, and "
    "matchings of digits. Every loss sees the same nets, batches and epochs; differences are paired over seeds.",
    config=Config,
    train=train,
    check=check,
    axes=("task", "loss"),
    recipes={"published": published},
    adjust=adjust,
    expand=expand,
    repetitions=10,
    weight=lambda config: config.plan().epochs * {"matching": 100, "energy": 3}.get(config.task, 1),
    threads=1,
    settings={"data_dir": (Path, None, "Default $DIRECTLOSS_DATA_DIR, then ~/.cache/directloss.")},
    columns=standings.columns(Column("place", "task", setting=True)),
    lines=lambda rows: standings.lines(rows, place, sees),
    measured=standings.measured,
    notes=lambda rows: standings.verdicts(rows, place),
    figures=(
        Drawing(
            "regret",
            "Means, and 95 % intervals of the paired difference to the best one (dotted); arrows: beyond the axis",
            lambda rows: contest_figures.draw_standings(rows, place),
            lambda rows: contest_figures.standing_points(rows, place),
        ),
        Drawing(
            "course",
            "What was measured after each epoch, mean over seeds; the last value beside each loss",
            lambda rows: contest_figures.draw_course(rows, place),
            lambda rows: contest_figures.course_points(rows, place),
        ),
        Drawing(
            "settings",
            "What scale and epsilon did over training, mean and range over seeds",
            lambda rows: contest_figures.draw_settings(rows, place),
            lambda rows: contest_figures.setting_points(rows, place),
        ),
    ),
    spread=lambda rows: (
        "standard deviation over seeds; 95 % intervals of paired differences, Student's over seeds, "
        "for ranking the bootstrap over test queries"
    ),
    by=place,
    example="--tasks path",
)
