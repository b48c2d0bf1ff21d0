"""The decisions that are learned, one task a file, and the settings that each was published with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task, the settings it was published with, and the options that change them."""

    make: str  # (config, seed, data_dir) -> Problem
    preset: Mapping[str, Any]
    tuned: Mapping[str, Any]  # constants of the direct loss; those of ranking and matching are a first guess
    several: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # all are tried, unless one is asked for

    @property
    def options(self) -> set[str]:
        return {*self.preset, *self.several}


TASKS = {
    "path": Task(
        "directloss.experiments.tasks.synthetic:path",
        {"degree": 4, "size": 5, "noise": 0.5, "train": 1000, "data_seed": 42, "epochs": 20, "rate": 1e-2},
        {"epsilon": 2.0, "sides": "both", "scale": 0.5, "samples": 3},
    ),
    "knapsack": Task(
        "directloss.experiments.tasks.synthetic:knapsack",
        {
            "degree": 6,
            "size": 16,
            "noise": 0.5,
            "train": 100,
            "data_seed": 135,
            "capacity": 20,
            "epochs": 40,
            "rate": 1e-1,
        },
        {"epsilon": -3.0, "scale": 3.0, "noise": "normal", "samples": 5},
    ),
    "energy": Task(
        "directloss.experiments.tasks.energy:energy",
        {"epochs": 30, "batch": 55, "rate": 0.03},
        {"epsilon": 1.0, "sides": "both", "scale": 0.5, "samples": 1},
        {"capacity": (60, 120, 180)},
    ),
    "ranking": Task(
        "directloss.experiments.tasks.ranking:ranking",
        {"epochs": 50, "batch": 20, "rate": 1e-2},
        {"epsilon": 1.0, "sides": "both", "scale": 1.0, "samples": 3},
        {"net": ("linear", "mlp")},
    ),
    "matching": Task(
        "directloss.experiments.tasks.matching:matching",
        {"train": 10_000, "unseen": False, "epochs": 30, "batch": 70, "rate": 1e-3, "rate_end": 0.0},
        {"epsilon": 1.0, "sides": "both", "scale": 1.0, "samples": 1},
    ),
}
