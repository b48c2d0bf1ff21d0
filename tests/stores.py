"""A results store as the commands and the benchmarks fill it, with made-up results where real ones take long."""

import importlib.util
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from directloss.cli import main
from directloss.experiments import distribution, sorting
from directloss.lab import figures
from directloss.lab.store import Store

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
# Of each cell: the recipe, method, size and seed, how many repetitions, and how many of them sort perfectly.
SORTED = [
    ("paper", "direct0", 5, 0, 200, 197),
    ("paper", "direct0", 10, 0, 200, 200),
    ("paper", "dsl", 5, 0, 200, 200),
    ("paper", "dsl", 7, 0, 40, 13),  # a size that the paper does not have
    ("paper", "dsl", 100, 0, 31, 0),
    ("paper", "gumbel-sinkhorn", 10, 0, 1, 0),
    ("best", "direct1", 5, 0, 8, 7),
    ("best", "dsl", 5, 0, 8, 8),
    ("best", "dsl", 5, 1, 3, 2),
]
COMMANDS = (
    "dynamics --sizes 3,4 --repetitions 2 --epochs 3",
    "dynamics --sizes 3 --repetitions 2 --epochs 3 --methods direct1",
    "dynamics --sizes 3 --repetitions 2 --epochs 3 --seed 1",
    "audit --repetitions 200",
    "audit --repetitions 200 --structure subset --size 4 --scales 0,.5 --epsilons=-2,2,-3 --samples 1,2",
    "distribution",
    "decide --tasks path,knapsack --losses spo+,least-squares --train 32 --epochs 1 --repetitions 2",
    "knn --data digits --k 3 --methods direct0,neuralsort --epochs 1 --width 4 --candidates 200",
    "knn --data digits --k 2 --epochs 1 --width 4 --seed 1",
)


def made_up(config: sorting.Config, repetition: int, perfect: bool) -> dict[str, Any]:
    """A result as the training yields it: perfect, or with two neighbours swapped."""
    pairs = config.size * (config.size - 1) / 2
    return {
        "perfect": perfect,
        "wrong": 0.0 if perfect else 2 / config.size,
        "kendall_tau": 1.0 if perfect else 1 - 2 / pairs,
        "epochs": min(100 + repetition, config.max_epochs),
        "seconds": 0.5 + repetition / 64,
        "training_error": 0.25,
        "sigma": 0.5,
        "final_epsilon": abs(config.epsilon),
    }


def train_instantly(config: sorting.Config, repetitions: list[int], context: Any) -> list[tuple[int, dict[str, Any]]]:
    """What stands in for ``sorting_stack.train``."""
    return [(repetition, made_up(config, repetition, True)) for repetition in repetitions]


def add_sorting(store: Store, config: sorting.Config, repetitions: int, perfect: int) -> None:
    results = ((number, made_up(config, number, number < perfect)) for number in range(repetitions))
    store.add(sorting.EXPERIMENT.key(config), results)


def run_benchmark(command: str, store: Path) -> None:
    """Run a script of ``benchmarks/`` whose clock is made up."""
    name, *arguments = command.split()
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "lap", SimpleNamespace(__version__="0"))
        patch.setattr(sys, "argv", [name, *arguments, f"--store={store}"])
        spec.loader.exec_module(script)
        if name == "sorting":
            patch.setattr(script, "stacked_seconds", lambda config, epochs: 1e-4 * config.size * config.samples)
            patch.setattr(script, "plain_seconds", lambda size, epochs: 1e-2 * size)
        else:
            times = cycle((2.0, 8.0))
            names = ("ours", "lapx", "sinkhorn", "two")
            measure = lambda *setting: dict.fromkeys(names, 1.0) | {"scipy": next(times) - setting[-1]}  # noqa: E731
            patch.setattr(script, "measure", measure)
            patch.setattr(script, "memory_copies", lambda: 2.0)
        script.main()
    torch.set_num_threads(threads)


def run(command: str, store: Path, folder: Path) -> None:
    """Run a command that saves figures, without its files and at three scales only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda figure, path: None)
        patch.setattr(distribution, "SIGMAS", (0.0, 0.5, 3.0))
        if command.startswith("knn"):
            command += f" --checkpoints={folder / 'checkpoints'}"
        main([*command.split(), f"--store={store}", f"--output={folder}"])


def fill(path: Path) -> None:
    """Put every experiment into a store, with some rows that a report must keep apart or leave out."""
    store = Store(path)
    for recipe, method, size, seed, repetitions, perfect in SORTED:
        add_sorting(store, sorting.EXPERIMENT.recipes[recipe](method, size, seed), repetitions, perfect)
    add_sorting(store, replace(sorting.paper("dsl", 5, 0), epsilon=-3.0, limit=300.0), 50, 0)
    store.close()
    for command in COMMANDS:
        run(command, path, path.parent / "files")
    for command in ("sorting --sizes 10,100", "matching --sizes 10,100", "matching --sizes 10 --unrelated"):
        run_benchmark(command, path)
