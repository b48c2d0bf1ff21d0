"""k nearest neighbours on images: tables 3 and 4 of the paper, ``directloss knn``.

A net embeds images; a query's scores are its negative distances to the candidates; the prediction is the k nearest,
and the loss is the share of them with another label.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from directloss.experiments.curves import draw, points
from directloss.experiments.neighbor_recipes import OF_ANY_WIDTH, PAPER, Config, adjust, best, paper
from directloss.lab.experiment import Drawing, Experiment
from directloss.lab.table import Column, Line, deviation, mean

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
    for method, line in zip(PAPER, text.splitlines(), strict=True)
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


def _net(row: Any) -> str:
    return f"{row['net']}-{row['width']}" if row["net"] in OF_ANY_WIDTH else str(row["net"])


def _mirrored(rows: Sequence[Any]) -> float | None:
    """The mean of the accuracies with mirror-averaged embeddings, if the rows have them."""
    try:
        return mean("mirrored_accuracy")(rows)
    except KeyError:
        return None


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
        Column("_net", "net", lambda rows: _net(rows[0]), setting=True),
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
        Column("mirrored_accuracy", "mirrored %", _mirrored, "{:.2f}"),
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
    figures=(Drawing("curves", "Learning curves", draw, points),),
    spread=lambda rows: "standard deviation over seeds" if len(rows) > 1 else "one training",
    by=("data", "recipe"),
    example="--data mnist --k 1,3,5,9",
    over="seed",
)
