"""Seconds for each query of the k-nearest-neighbours experiment: direct loss against NeuralSort (table 4).

    python benchmarks/neighbors.py [--data mnist] [--k 5] [--steps 30] [--epochs 3] [--threads 2] [--markdown FILE]
                                   [--store FILE]

All methods train the same net on the same batches in one process, in turns, so that a busy machine slows all of them.
The first table times `--steps` steps of each after an epoch of warm-up, with the batches of both recipes: `best`
(every image is a query) and `paper` (100 queries). The second follows DSL over `--epochs` epochs with and without the
sparse backward pass, which spares the images that receive no gradient (residual nets with group norm).
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from directloss import data
from directloss.experiments.images import Images
from directloss.experiments.neighbor_recipes import Config
from directloss.experiments.neighbor_training import Training
from directloss.experiments.neighbors import EXPERIMENT
from directloss.experiments.ranks import Ranks
from directloss.lab.provenance import code_version, machine
from directloss.lab.store import Key, Store
from directloss.lab.table import markdown

METHODS = ("dsl", "direct0", "neuralsort", "neuralsort-stochastic", "relaxsubsample")


def seconds_per_query(configs: dict[str, Config], images: Images, steps: int) -> dict[str, float]:
    """The median step of each, after an epoch of training, over its queries."""
    trainings = {name: Training(config, images, Ranks()) for name, config in configs.items()}
    for training in trainings.values():
        training.run_epoch()
    seconds: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(steps):
        for name, training in trainings.items():
            start = time.perf_counter()
            training.step(*next(training.batches()))
            seconds[name].append(time.perf_counter() - start)
    asked = {name: config.queries or config.candidates for name, config in configs.items()}
    return {name: statistics.median(times) / asked[name] for name, times in seconds.items()}


def sparse_saving(config: Config, images: Images, epochs: int) -> list[dict[str, float]]:
    """Epoch by epoch: the seconds with and without the sparse backward pass, and the share of images it visits."""
    trainings = [Training(replace(config, sparse=sparse, norm="group"), images, Ranks()) for sparse in (True, False)]
    found = []
    for epoch in range(1, epochs + 1):
        sparse, dense = (training.run_epoch() for training in trainings)
        found.append(
            {
                "epoch": epoch,
                "active": sparse["active"],
                "sparse_seconds": sparse["seconds"],
                "dense_seconds": dense["seconds"],
                "sparse_loss": sparse["loss"],
                "dense_loss": dense["loss"],
            }
        )
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", choices=data.SOURCES)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3, help="of the second table; 0 leaves it out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--store", type=Path, help="also save the rows in this results file, for the report")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    net = "lenet" if options.data == "mnist" else "resnet9"
    facts = f"commit {code_version()}, {machine()}, {options.threads} threads, {options.data}, {net}, k = {options.k}"
    print(facts)
    images = Images(data.load(options.data), 200 if options.data == "digits" else 5000)
    most = len(images.train) // 2
    best = {name: EXPERIMENT.recipes["best"](options.data, name, options.k, net, 0) for name in METHODS}
    lines = []
    for batch, make in EXPERIMENT.recipes.items():
        recipe = make(options.data, "dsl", options.k, net, 0)
        candidates = min(recipe.candidates, most)
        sizes = {"candidates": candidates, "queries": recipe.queries}
        configs = {name: replace(config, **sizes) for name, config in best.items()}
        found = seconds_per_query(configs, images, options.steps)
        lines.append(
            [f"{batch}: {candidates} candidates, {sizes['queries'] or candidates} queries"]
            + [f"{1e3 * found[name]:.2f} ({found[name] / found['dsl']:.2f})" for name in METHODS]
        )
        print(lines[-1], flush=True)
        if options.store:
            config = {"benchmark": "neighbors", "size": candidates, "batch": batch, "data": options.data, "net": net}
            config |= {"k": options.k, "commit": code_version(), "seed": 0}
            config["spread"] = f"median of {options.steps} steps after an epoch, {options.threads} threads, one process"
            result = {"seconds_per_query": found}
            Store(options.store).add(Key("speed", config), [(0, result)])
    text = markdown(["ms a query (over DSL's)", *METHODS], lines)
    if options.epochs:
        dsl = replace(best["dsl"], candidates=min(best["dsl"].candidates, most))
        saving = sparse_saving(dsl, images, options.epochs)
        header = ["epoch", "images with a gradient, %", "sparse, s", "dense, s", "dense / sparse"]
        text += "\n" + markdown(
            header,
            [
                [
                    str(point["epoch"]),
                    f"{100 * point['active']:.0f}",
                    f"{point['sparse_seconds']:.1f}",
                    f"{point['dense_seconds']:.1f}",
                    f"{point['dense_seconds'] / point['sparse_seconds']:.2f}",
                ]
                for point in saving
            ],
        )
    print(text)
    if options.markdown:
        options.markdown.write_text(f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
