"""Learning to sort by matching: tables 1 and 2 of the paper, ``directloss sort``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from directloss.lab.experiment import Experiment
from directloss.lab.options import option
from directloss.lab.table import Column, Line, deviation, mean

PAPER = ("direct0", "direct1", "dsl", "gumbel-sinkhorn")
METHODS = (*PAPER, "annealed", "handsfree")
COSTS = ("weighted-column", "weighted-row", "squared-error", "hamming", "rank-distance", "rank-distance-squared")


@dataclass(frozen=True)
class Config:
    """Every choice of a cell. The defaults are the paper's, or its released program's where the paper is silent."""

    method: str = option(help="With commas.", name="methods", of=lambda: METHODS, own=True, preset=",".join(PAPER))
    size: int = option(help="How many numbers, with commas.", name="sizes", least=2, preset="5,10,25,40,60,100")
    recipe: str = "paper"
    seed: int = option(0, "Of data, nets and noise.", least=0, preset=0)
    # data and training
    sequences: int = 10
    fresh: bool = option(False, "Draw new training sequences at every step.")
    max_epochs: int = option(2000, "At most.", name="epochs", least=1)
    patience: int = 50  # on the noisy training error; 0 for none. The last state is tested, not the best.
    learning_rate: float = 0.1  # Adam, score net
    decay: bool = False  # linearly to zero over the epochs
    # direct loss
    cost: str = option("weighted-column", "What a misplaced number costs.", of=lambda: COSTS)
    sides: Literal["one", "both", "each"] = "one"  # each: both, each with its own epsilon
    finds: bool = False  # epsilon, by the share of its own way, as DirectLoss does
    epsilon: float = option(-12.0, "Of the direct loss, its sign included.", nonzero=True)
    growth: float = 1.1  # when a repetition gives no difference although something is misplaced
    limit: float = 1200.0
    samples: int = option(5, "Noise draws for each sequence.", least=1)
    noise_variance: float = 3.0
    scale_learning_rate: float = 1e-6  # SGD, scale net; its gradient is a sum over samples and sequences, without 1/eps
    # Where epsilon is found, a learned scale is one number, its logarithm learned by Adam; it begins at scale_start
    # times the spread of the first scores. Annealing takes it to scale_end by the same factor in each step.
    scale_start: float = option(30.0, "Of a learned scale where epsilon is found, and of annealing.", above=0)
    scale_end: float = option(1.0, "Of annealing, which falls by the same factor in each step.", above=0)
    # Gumbel-Sinkhorn
    temperature: float = 1.0
    iterations: int = 20

    def __post_init__(self) -> None:
        if (self.method not in METHODS and ":" not in self.method) or self.cost not in COSTS:
            raise ValueError(f"method is {self.method!r}, cost {self.cost!r}; expected of {METHODS} and of {COSTS}")
        if self.method in ("annealed", "handsfree") and not self.finds:
            raise ValueError(f"{self.method} finds its epsilon: expected finds=True")

    @property
    def stack(self) -> int:
        """How many repetitions are trained together: what fits the caches. It does not change their results."""
        entries = self.sequences * self.samples * self.size**2
        return int(min(200, max(4, 2_000_000 // entries)))


def paper(method: str, size: int, seed: int = 0) -> Config:
    """The paper's recipe. Gumbel-Sinkhorn, for which it names none, stops as the others do: later is worse."""
    samples = {"direct0": 1, "gumbel-sinkhorn": 10}.get(method, 5)
    return Config(method, size, seed=seed, **{"samples": samples} | _settings_found(method))


def best(method: str, size: int, seed: int = 0) -> Config:
    """The same net, data and test with the recipe that sorts best."""
    longer: dict[str, Any] = {"max_epochs": 500, "patience": 0, "samples": 10, "decay": True}
    config = Config(method, size, "best", seed, **longer | _settings_found(method))
    if method == "gumbel-sinkhorn":
        return config
    direct: dict[str, Any] = {"sides": "both", "epsilon": 12.0, "samples": 1, "noise_variance": 0.03}
    return replace(config, max_epochs=200, cost="rank-distance", **direct | _settings_found(method))


def one_side(method: str, size: int, seed: int = 0) -> Config:
    """The better side alone, as in the paper; epsilon is found, and a learned scale starts far too large."""
    config = replace(best(method, size, seed), recipe="one-side")
    if method == "gumbel-sinkhorn":
        return config
    return replace(config, max_epochs=300, samples=1, **_settings_found("annealed"))


def _settings_found(method: str) -> dict[str, Any]:
    """What there is to say of a method that finds its epsilon."""
    found: dict[str, Any] = {"finds": True, "noise_variance": 1.0, "scale_learning_rate": 0.03}
    return {"annealed": found | {"sides": "one"}, "handsfree": found | {"sides": "each", "samples": 2}}.get(method, {})


def adjust(config: Config, **overrides: Any) -> Config:
    """Another epsilon has another limit."""
    limit = {"limit": 100 * abs(overrides["epsilon"])} if "epsilon" in overrides else {}
    return replace(config, **overrides, **limit)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share."""
    z = 1.959964
    share = successes / trials
    center = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def _interval(line: Line) -> str:
    low, high = wilson(round(line["perfect"] * line["repetitions"] / 100), line["repetitions"])
    return f"{100 * low:.1f} - {100 * high:.1f}"


# Table 1: perfectly sorted test sequences, misplaced entries and their standard deviation, in percent, for each size.
_SIZES = (5, 10, 25, 40, 60, 100)
_PRINTED = {
    "direct0": ("98.5 97 89.5 84.5 82 74.9", "0.6 0.6 0.9 1.2 0.9 1.4", "4.9 3.4 2.8 4.5 2.6 6.9"),
    "direct1": ("100 100 97.5 90.5 80 68.5", "0 0 0.3 0.6 0.9 1.2", "0 0 1.7 2.2 2.2 2.4"),
    "dsl": ("100 100 97.5 91.6 83.3 76.8", "0 0 0.3 0.5 0.7 0.9", "0 0 1.6 1.6 1.8 2.1"),
    "gumbel-sinkhorn": ("100 100 87.5 83.5 21 0", "0 0 1 1 5 11.3", "0 0 3 5 9 11.2"),
}
TABLE_1 = {
    (method, size): tuple(map(float, figures))
    for method, lines in _PRINTED.items()
    for size, *figures in zip(_SIZES, *map(str.split, lines), strict=True)
}
# Table 2: seconds for each epoch, on one K80.
TABLE_2: dict[str, dict[int, float]] = {
    "dsl": {10: 0.247, 40: 0.252, 100: 0.304},
    "gumbel-sinkhorn": {10: 0.288, 40: 0.294, 100: 0.306},
}


def _paper(line: Line, show: str) -> str | None:
    theirs = TABLE_1.get((line["method"], line["size"]))
    return show.format(*theirs) if theirs else None


def _seconds_per_epoch(rows: Sequence[Any]) -> float:
    return float(sum(row["seconds"] for row in rows) / sum(row["epochs"] for row in rows))


EXPERIMENT = Experiment(
    name="sorting",
    command="sort",
    title="Learning to sort by matching: ours beside the paper's (table 1)",
    text="Learn to sort d numbers by matching them to positions, from ten sequences: tables 1 and 2 of the paper. Each "
    "repetition is tested on one fresh sequence. The methods direct0 and direct1 have noise of scale 0 and 1, dsl a "
    "learned scale, annealed one that falls; handsfree finds scale and epsilon by itself.",
    config=Config,
    train="directloss.experiments.sorting_stack:train",
    axes=("method", "size"),
    recipes={"paper": paper, "best": best, "one-side": one_side},
    adjust=adjust,
    repetitions=200,
    stack=lambda config: config.stack,
    weight=lambda config: (
        (10 if "sinkhorn" in config.method else 1) * config.size**2 * config.samples * config.max_epochs
    ),
    threads=1,
    columns=(
        Column("method", "method"),
        Column("size", "d"),
        Column("recipe", "recipe", setting=True),
        Column("repetitions", "n", len),
        Column("perfect", "perfect %", mean("perfect", 100), "{:.1f}"),
        Column("_interval", "95 % interval", len, _interval, lambda line: _paper(line, "{0:g}"), below=True),
        Column(
            "wrong_mean",
            "misplaced %",
            mean("wrong", 100),
            lambda line: f"{line['wrong_mean']:.2f} ± {line['wrong_std']:.1f}",
            lambda line: _paper(line, "{1:g} ± {2:g}"),
        ),
        Column("wrong_std", "", deviation("wrong", 100)),
        Column("kendall_tau", "tau", mean("kendall_tau"), "{:.4f}"),
        Column("epochs_mean", "epochs", mean("epochs"), "{:.0f}"),
        Column(
            "seconds_per_epoch", "ms/epoch", _seconds_per_epoch, lambda line: f"{1e3 * line['seconds_per_epoch']:.2f}"
        ),
        Column("_seed", "seed", lambda rows: rows[0]["seed"], setting=True),
    ),
    spread=lambda rows: "95 % Wilson interval, standard deviation over repetitions",
    by=("recipe", "seed"),
    example="--recipe paper",
)
