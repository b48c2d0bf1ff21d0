"""Both signs of epsilon while sorting is learned: figure 3 of the paper, ``directloss dynamics``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from directloss.experiments import sorting
from directloss.lab import figures
from directloss.lab.experiment import Context, Drawing, Experiment
from directloss.lab.options import option
from directloss.lab.table import Column, Line, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECT = ("direct0", "direct1", "dsl")
PANELS = (("loss", "squared error"), ("y", "rightly placed by y, %"), ("y_eps", "rightly placed by y(ε), %"))


@dataclass(frozen=True)
class Config(sorting.Config):
    """A cell of the sorting experiment, and over how many repetitions its trace is averaged."""

    method: str = option(help="With commas.", name="methods", of=lambda: DIRECT, preset="dsl")
    size: int = option(help="How many numbers, with commas.", name="sizes", least=2, preset="10,100")
    max_epochs: int = option(2000, "Of the trace.", name="epochs", least=1, preset=200)
    repetitions: int = option(10, "Trainings to average.", least=1, preset=10)


def _recipe(name: str, method: str, size: int) -> Config:
    return Config(**asdict(sorting.EXPERIMENT.recipes[name](method, size)))


def both_signs(config: Config) -> list[Config]:
    """Without early stopping."""
    return [replace(config, epsilon=sign * abs(config.epsilon), patience=0) for sign in (1, -1)]


def train(config: Config, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in repetitions:
        yield number, {"curve": trace(config, config.repetitions, context)}


def points(rows: Sequence[Any]) -> list[Line]:
    """The curves, a line for each epoch."""
    names = ("method", "size", "epsilon")
    return [{name: row[name] for name in names} | point for row in rows for point in row["curve"]]


def trace(config: sorting.Config, repetitions: int, context: Context = Context()) -> list[dict[str, float]]:
    """The mean over repetitions of every epoch's loss and shares."""
    import torch

    from directloss.experiments import sorting_methods, sorting_stack

    steps: list[sorting_methods.Step] = []
    list(sorting_stack.train(config, range(repetitions), context, steps.append))
    error = torch.stack([step.error for step in steps]).mean(1)
    right = 100 * torch.stack([step.right for step in steps]).mean(2)
    return [
        {"epoch": epoch, "loss": error[epoch].item(), "y": right[epoch, 0].item(), "y_eps": right[epoch, 1].item()}
        for epoch in range(len(steps))
    ]


def draw(rows: Sequence[Any]) -> "Figure":
    """One row of panels; colour is the size, a full line is a negative epsilon."""
    figure, axes = figures.panels(len(PANELS))
    colors = dict(zip(sorted({row["size"] for row in rows}), cycle(figures.COLORS), strict=False))
    for row in sorted(rows, key=lambda row: (row["size"], row["epsilon"])):
        for axis, (name, label) in zip(axes, PANELS, strict=True):
            axis.plot(
                [point["epoch"] for point in row["curve"]],
                [point[name] for point in row["curve"]],
                color=colors[row["size"]],
                linestyle="-" if row["epsilon"] < 0 else "--",
                label=f"d = {row['size']}, ε = {row['epsilon']:g}",
            )
            axis.set_xlabel("epoch")
            axis.set_title(label, fontsize=10)
            axis.xaxis.get_major_locator().set_params(integer=True)
    figures.use_log(axes[0], "y")
    axes[1].set_ylim(0, 102)
    axes[2].set_ylim(0, 102)
    axes[-1].legend(fontsize=8, frameon=False)
    return figure


def _last(name: str) -> Callable[[Sequence[Any]], float]:
    return lambda rows: float(rows[0]["curve"][-1][name])


EXPERIMENT = Experiment(
    name="dynamics",
    command="dynamics",
    title="Learning to sort with both signs of epsilon (figure 3)",
    text="Trace the loss, and the share of entries that the prediction y and the loss-augmented prediction y(ε) place "
    "rightly, while sorting is learned: figure 3 of the paper. Full lines: a negative epsilon, to better structures.",
    config=Config,
    train=train,
    axes=("method", "size"),
    recipes={name: partial(_recipe, name) for name in ("paper", "best")},
    adjust=sorting.adjust,
    expand=both_signs,
    weight=lambda config: config.repetitions * config.size**2 * config.samples * config.max_epochs,
    threads=1,
    columns=(
        Column("method", "method"),
        Column("size", "d"),
        Column("recipe", "recipe", setting=True),
        Column("epsilon", "ε", show="{:g}"),
        Column("repetitions", "n", setting=True),
        Column("epochs", "epochs", lambda rows: len(rows[0]["curve"]), setting=True),
        Column("loss", "squared error", _last("loss"), "{:.4g}"),
        Column("y", "y right, %", _last("y"), "{:.1f}"),
        Column("y_eps", "y(ε) right, %", _last("y_eps"), "{:.1f}"),
        Column("seed", "seed", setting=True),
    ),
    figures=(Drawing("dynamics", "Loss and shares over the epochs", draw, points),),
    by=("recipe", "method", "seed", "repetitions", "max_epochs"),
    spread=lambda rows: f"mean of {join((row['repetitions'] for row in rows), ', ')} repetitions",
    example="--sizes 10,100",
)
