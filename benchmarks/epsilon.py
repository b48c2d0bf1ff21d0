"""What `dl.suggest_epsilon` says while sorting is learned: at initialisation, and after some steps.

    python benchmarks/epsilon.py [--sizes 10,25,100] [--repetitions 8] [--seed 3]

Trains what `directloss sort --recipe best --methods direct0` trains (ten sequences, both sides, epsilon 12, rank
distance, no noise). The suggestion is made for each repetition on its own; printed are the mean, and the least and the
largest of them.
"""

import argparse

import torch

import directloss as dl
from directloss.lab.provenance import code_version, machine
from directloss.lab.table import markdown

STEPS = (0, 5, 10, 20, 50)
EPOCHS = 200


def suggestions(size: int, repetitions: int, seed: int) -> list[str]:
    """A cell for each of STEPS."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(repetitions, 10, size, generator=generator)
    cost = dl.costs.rank_distance(x, descending=True) / size
    net = dl.nets.SortingNet(size, stack=(repetitions,), generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS)
    cells = []
    for step in range(max(STEPS) + 1):
        scores = net(x)
        if step in STEPS:
            pairs = zip(scores, cost, strict=True)
            found = torch.tensor([dl.suggest_epsilon(mu, c, dl.Matching(), sides="both") for mu, c in pairs])
            cells.append(f"{found.mean():.2g} ({found.min():.2g} - {found.max():.2g})")
        optimizer.zero_grad()
        dl.direct_loss(scores, cost, dl.Matching(), epsilon=12.0, sides="both", reduction="sum").backward()
        optimizer.step()
        decay.step()
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,25,100")
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    header = ["d", *(f"after {step} steps" if step else "at initialisation" for step in STEPS)]
    sizes = map(int, options.sizes.split(","))
    body = [[str(size), *suggestions(size, options.repetitions, options.seed)] for size in sizes]
    print(f"Commit {code_version()}, seed {options.seed}, {options.repetitions} repetitions, {machine()}\n")
    print(markdown(header, body), end="")


if __name__ == "__main__":
    main()
