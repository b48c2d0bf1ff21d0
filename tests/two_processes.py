"""Started by torchrun, or called in one process: training as ranks, one step of a net and its scale, and a command."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import directloss as dl
from directloss.cli import main
from directloss.experiments.images import Images
from directloss.experiments.neighbor_recipes import Config, best
from directloss.experiments.neighbor_training import Training, train_cell
from directloss.experiments.ranks import Ranks

METHODS = ("dsl", "neuralsort", "softmax-knn")


@dataclass(frozen=True)
class Ramp(dl.noise.Noise):
    """The same draws for every query, however many processes share them."""

    standard_variance: ClassVar[float] = 1.0

    def _standard(self, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
        return torch.sin(torch.arange(shape[-1], dtype=options["dtype"])).expand(shape).clone()


def tiny(method: str, **changes: Any) -> Config:
    config = best("digits", method, 3, "resnet9", 0)
    return replace(config, **{"width": 4, "epochs": 2, "candidates": 200, "validation": 200, **changes})


def step(method: str, images: Images, ranks: Ranks) -> dict[str, Tensor]:
    """The parameters after a step of rate one, by their gradients alone."""
    training = Training(tiny(method, augment="none", norm="group"), images, ranks)
    training.criterion.direct.noise = Ramp()
    training.optimizer = torch.optim.SGD(training.net.parameters(), lr=1.0)
    if method == "softmax-knn":
        training.optimizer.add_param_group({"params": list(training.companion.parameters())})
    training.scale_optimizer = torch.optim.SGD(training.companion.parameters(), lr=1.0)
    training.step(torch.arange(200), torch.arange(0))
    return {**training.net.state_dict(prefix="net."), **training.companion.state_dict(prefix="scale.")}


def run() -> None:
    torch.set_num_threads(1)
    ranks, images = Ranks.join(), Images(dl.data.load("digits"), 200)
    found = {}
    for method in METHODS:
        result = train_cell(tiny(method), images, Path(f"{method}.pt"), ranks)
        training = Training(tiny(method), images, ranks)
        training.run_epoch()
        found[method] = {"step": step(method, images, ranks), "trained": training.net.state_dict(), "result": result}
    torch.save(found, f"rank-{ranks.index}.pt")
    main(["knn", "--data", "digits", "--k", "3", "--epochs", "1", "--width", "4", "--threads", "1", "--json"])


if __name__ == "__main__":
    run()  # A function, so that nothing holds the group of processes when it is left.
