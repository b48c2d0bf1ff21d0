"""k nearest neighbours on images: tables 3 and 4 of the paper, ``directloss knn``.

A net embeds images; a query's scores are its negative distances to the candidates; the prediction is the k nearest,
and the loss is the share of them with another label.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from directloss.errors import UserError
from directloss.experiments.curves import draw, points
from directloss.lab.experiment import Drawing, Experiment
from directloss.lab.options import option
from directloss.lab.table import Column, Line, deviation, mean

DIRECT = ("direct0", "direct1", "dsl")
METHODS = (*DIRECT, "neuralsort", "neuralsort-stochastic", "relaxsubsample")
DATA = ("mnist", "fashion-mnist", "cifar-10", "digits")
NETS = ("lenet", "resnet9", "resnet18")


@dataclass(frozen=True)
class Config:
    """Every choice of a cell. The defaults are the paper's."""

    data: str = option(help="With commas.", of=lambda: DATA, preset="mnist")
    method: str = option(help="With commas.", name="methods", of=lambda: METHODS, own=True, preset="dsl")
    k: int = option(help="Neighbours, with commas.", least=1, preset="5")
    net: str = option("lenet", "Default by the data.", of=lambda: NETS)
    width: int = option(32, "Of a resnet9.", least=1)
    norm: str = "batch"  # of a resnet; or group
    recipe: str = "paper"
    seed: int = option(0, "One or more, with commas.", least=0, most=2**63 - 1, preset="0")
    # training
    epochs: int = option(220, "Each is one pass over the candidates.", least=1)
    candidates: int = option(800, "In a batch.", least=2)
    queries: int = option(100, "In a batch, besides; 0 lets all candidates be queries.", least=0)
    validation: int = 5000  # images kept from training, to choose the epoch
    bank: int = 10_000  # training images that vote in validation; in the test all do
    augment: str = "none"  # or shift, flip, or shift-flip
    optimizer: str = "adam"  # or sgd, or momentum
    learning_rate: float = option(1e-3, "Of the net.", above=0)
    weight_decay: float = 0.0
    decay: bool = False  # linearly to zero
    sparse: bool = False  # no backward pass for images without a gradient; exact for nets without batch statistics
    # direct loss
    cost: str = "label-distance"  # or wrong-label
    sides: Literal["one", "both"] = option("one", "Of the direct loss.", of=lambda: ("one", "both"))
    epsilon: float = option(-0.1, "Of the direct loss, its sign included.", nonzero=True)
    limit: float = 0.9999
    samples: int = 1
    noise_variance: float = math.pi**2 / 6  # of standard Gumbel noise
    scale_input: str = "image"  # of a net of its own, or embedding: of one more layer
    scale_optimizer: str = "sgd"
    scale_learning_rate: float = 1e-6
    # relaxations
    temperature: float = 16.0

    def __post_init__(self) -> None:
        if self.method not in METHODS and ":" not in self.method:
            raise ValueError(f"method is {self.method!r}; expected of {METHODS}")
        if self.net not in NETS:
            raise ValueError(f"net is {self.net!r}; expected of {NETS}")
        if self.sparse and self.net != "lenet" and self.norm == "batch":
            raise ValueError("sparse is exact for nets without batch statistics only; give norm='group'")


def paper(data: str, method: str, k: int, net: str | None = None, seed: int = 0) -> Config:
    """The paper's recipe; for the relaxations that of NeuralSort's authors, which it follows."""
    colour = data == "cifar-10"
    net = net or {"mnist": "lenet", "digits": "resnet9"}.get(data, "resnet18")
    make = partial(Config, data, method, k, net, seed=seed, candidates=600 if colour else 800)
    if data == "digits":
        make = partial(make, candidates=400, validation=200)
    if method in DIRECT:
        return make(epsilon=-0.2 if colour else -0.1, samples=1 if k > 1 or method == "direct0" else 5)
    return make(
        optimizer="momentum",
        weight_decay=5e-4,
        samples=1 if method == "neuralsort" else 5,
        temperature=1.0 if method == "relaxsubsample" else 64.0 if colour else 16.0,
    )


def best(data: str, method: str, k: int, net: str | None = None, seed: int = 0) -> Config:
    """What two cores learn best from in minutes: every image is a query, a falling rate, varied images."""
    direct, net = method in DIRECT, net or ("lenet" if data == "mnist" else "resnet9")
    make = partial(
        Config,
        data,
        method,
        k,
        net,
        width=16,
        recipe="best",
        seed=seed,
        queries=0,
        augment={"digits": "none", "mnist": "shift"}.get(data, "flip"),
        decay=True,
        cost="wrong-label",
        sides="both",
        epsilon=float(k),
        limit=100.0 * k,
        scale_input="embedding",
        scale_optimizer="adam",
        validation=200 if data == "digits" else 5000,
    )
    if net == "lenet":
        return make(
            # In the same time: a relaxation has more to compute, and a direct loss spares half of the backward passes.
            epochs=24 if direct else 12,
            candidates=400 if data == "digits" else 500,
            sparse=direct,
            noise_variance=0.03,
            scale_learning_rate=1e-3,
            temperature=1.0 if method == "relaxsubsample" else 16.0,
        )
    make = partial(
        make,
        epochs={"fashion-mnist": 14, "cifar-10": 24}.get(data, 16),
        candidates=250,
        learning_rate=3e-3 if data == "cifar-10" else 8e-3,
        weight_decay=1e-4,
        # At k = 1 a draw moves two candidates at most.
        samples=1 if method == "neuralsort" else 20 if direct and k == 1 else 5,
        noise_variance=0.2,
        scale_learning_rate=1e-5,
        temperature=1.0 if method == "relaxsubsample" else 256.0 if data == "cifar-10" else 64.0,
    )
    if direct and data == "cifar-10":
        # Far to the better side lie the nearest of the right label, however far they are themselves. Without noise the
        # embeddings fall into one point.
        return make(sides="one", epsilon=-10.0 * k, samples=20, noise_variance=0.5)
    return make()


def adjust(config: Config, **overrides: Any) -> Config:
    """An epsilon beyond the limit raises it."""
    if "width" in overrides and config.net != "resnet9":
        raise UserError(
            f"--width is of a resnet9, but the net for {config.data} is {config.net}; leave it out, or give --net"
        )
    return replace(config, **overrides, limit=max(config.limit, abs(overrides.get("epsilon", 0))))


# Table 3: test accuracy in percent, for k = 1, 3, 5, 9; a line for each of the methods.
_TABLE_3 = {
    "mnist": """99.1 99.2 99.3 99.2
        16.0 53.84 14.25 41.53
        99.34 99.4 99.4 99.34
        99.2 99.5 99.3 99.3
        99.1 99.3 99.4 99.4
        - - 99.3 -""",
    "fashion-mnist": """89.8 93.2 93.5 93.7
        92.5 93.4 93.3 93.2
        92.6 93.3 94.0 93.7
        92.6 93.2 93.5 93.0
        92.2 93.1 93.3 93.4
        - - 93.6 -""",
    "cifar-10": """24.9 27.0 39.6 39.9
        23.1 89.95 90.85 91.6
        29.6 90.7 91.25 91.7
        88.7 90.0 90.2 90.7
        85.1 87.8 88.0 89.5
        - - 90.1 -""",
}
TABLE_3 = {
    (data, method, k): float(figure)
    for data, text in _TABLE_3.items()
    for method, line in zip(METHODS, text.splitlines(), strict=True)
    for k, figure in zip((1, 3, 5, 9), line.split(), strict=True)
    if figure != "-"
}
# Table 4: seconds for each epoch at k = 3, on one K80; an epoch is another number of queries for each.
TABLE_4: dict[tuple[str, str], float] = {
    ("mnist", "dsl"): 28.3,
    ("mnist", "neuralsort-stochastic"): 14.4,
    ("fashion-mnist", "dsl"): 198.6,
    ("fashion-mnist", "neuralsort-stochastic"): 328.6,
    ("cifar-10", "dsl"): 220.0,
    ("cifar-10", "neuralsort-stochastic"): 337.6,
}


def _figure(found: float | None) -> str | None:
    return f"{found:g}" if found else None


def _accuracy(line: Line) -> str:
    spread = f" ± {line['_deviation']:.2f}" if line["_seeds"] > 1 else ""
    return f"{line['accuracy']:.2f}{spread}"


EXPERIMENT = Experiment(
    name="neighbors",
    command="knn",
    title="k nearest neighbours: ours beside the paper's (tables 3 and 4)",
    text="Learn an embedding of images whose k nearest neighbours carry the right label: tables 3 and 4 of the paper. "
    "Tested by majority vote over the training images.",
    config=Config,
    train="directloss.experiments.neighbor_training:train",
    axes=("data", "seed", "method", "k"),
    recipes={"best": best, "paper": paper},
    adjust=adjust,
    check="directloss.experiments.neighbor_training:check",
    weight=lambda config: float(config.epochs),
    settings={
        "data_dir": (Path, None, "Image files. Default $DIRECTLOSS_DATA_DIR, then ~/.cache/directloss."),
        "checkpoints": (Path, Path("checkpoints"), "Folder to resume from. Default checkpoints."),
    },
    ranks=True,
    columns=(
        Column("data", "data", setting=True),
        Column("method", "method"),
        Column("k", "k"),
        Column("net"),
        Column(
            "_net",
            "net",
            lambda rows: f"resnet9-{rows[0]['width']}" if rows[0]["net"] == "resnet9" else rows[0]["net"],
            setting=True,
        ),
        Column("recipe", "recipe", setting=True),
        Column("epochs", "epochs", setting=True),
        Column(
            "accuracy",
            "accuracy %",
            mean("accuracy"),
            _accuracy,
            lambda line: _figure(TABLE_3.get((line["data"], line["method"], line["k"]))),
        ),
        Column("_deviation", "", deviation("accuracy")),
        Column("_seeds", "seeds", len, lambda line: str(line["_seeds"]) if line["_seeds"] > 1 else "", setting=True),
        Column("validation_accuracy", "valid. %", mean("validation_accuracy"), "{:.2f}"),
        Column("sigma", "sigma", mean("sigma"), "{:.3f}"),
        Column(
            "seconds_per_epoch",
            "s/epoch",
            mean("seconds_per_epoch"),
            "{:.1f}",
            lambda line: _figure(TABLE_4.get((line["data"], line["method"]))),
        ),
        Column(
            "seconds_per_query",
            "ms/query",
            mean("seconds_per_query"),
            lambda line: f"{1e3 * line['seconds_per_query']:.2f}",
        ),
        Column("seed"),
        Column("_seed", "seed", lambda rows: ", ".join(str(row["seed"]) for row in rows), setting=True),
    ),
    figures=(Drawing("curves", "Learning curves", draw, points, by=("data", "recipe")),),
    spread=lambda rows: "standard deviation over seeds" if len(rows) > 1 else "one training",
    by=("data", "recipe"),
    example="--data mnist --k 1,3,5,9",
    over="seed",
)
