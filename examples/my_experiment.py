"""An experiment of your own: which epsilon learns a top-2 choice? ``python my_experiment.py --help``.

The declaration gives it a command with --config, --json, --jobs and --report, a store to resume from, and a table.
"""

from dataclasses import dataclass

import torch

import directloss as dl
from directloss.lab.experiment import Experiment
from directloss.lab.options import option
from directloss.lab.run import main
from directloss.lab.table import Column, deviation, mean


@dataclass(frozen=True)
class Config:
    epsilon: float = option(help="With commas.", name="epsilons", nonzero=True, preset="-4,-1,1,4")
    steps: int = option(100, "Of training.", least=1, preset=100)


def train(config, repetitions, context):
    for number in repetitions:
        generator = torch.Generator().manual_seed(number)
        x, truth = torch.randn(64, 10, generator=generator), torch.randn(10, 8, generator=generator)
        target, scores = dl.Subset(2).solve(x @ truth), torch.zeros(10, 8, requires_grad=True)
        optimizer = torch.optim.Adam([scores], lr=0.1)
        for _ in range(config.steps):
            loss = dl.direct_loss(x @ scores, dl.costs.hamming(target), dl.Subset(2), epsilon=config.epsilon, scale=1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield number, {"right": (dl.Subset(2).solve(x @ scores.detach()) == target).all(-1).float().mean().item()}


EXPERIMENT = Experiment(
    name="epsilons",
    command="my_experiment.py",
    title="Top-2 choices learned rightly",
    text="Learn a top-2 choice with several epsilons.",
    config=Config,
    train=train,
    axes=("epsilon",),
    repetitions=3,
    columns=(
        Column("epsilon", "ε", show="{:g}"),
        Column("repetitions", "n", len),
        Column("right", "right %", mean("right", 100), "{:.1f}"),
        Column("deviation", "±", deviation("right", 100), "{:.1f}"),
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
