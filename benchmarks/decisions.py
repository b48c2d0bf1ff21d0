"""An epoch of the path task (PyEPO's notebook 03) by our losses and by PyEPO's with OR-Tools, the same rules.

    python benchmarks/decisions.py            # needs the extra [bench]: pyepo and ortools

One process, one thread, the same net, batches and optimiser: only the loss differs. OR-Tools and highspy do not share a
process, and nothing here loads highspy. Prints seconds an epoch (the best of several, taking turns), and the ratio.
"""

import argparse
import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import directloss as dl

BATCH, TRAIN, TARGET = 32, 1000, 10
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def ours(cost: torch.Tensor, target: torch.Tensor) -> dict[str, Step]:
    """Losses of predicted costs and of the instances' numbers; scores are the predictions negated."""
    structure, noise = dl.GridPath(shape=(5, 5)), dl.Normal()
    generator = torch.Generator().manual_seed(0)
    perturbed = {"scale": 1.0, "noise": noise, "samples": 3, "generator": generator}
    return {
        "SPO+": lambda found, which: dl.spo_plus(-found, cost[which], structure, target=target[which]),
        "Fenchel-Young, 3 samples": lambda found, which: dl.fenchel_young(
            -found, target[which], structure, **perturbed
        ),
        "two-sided difference": lambda found, which: dl.direct_loss(
            -found, cost[which], structure, epsilon=1.0, sides="both"
        ),
    }


def theirs(x: torch.Tensor, cost: torch.Tensor) -> dict[str, Step]:
    from pyepo.data.dataset import optDataset
    from pyepo.func import SPOPlus, perturbationGradient, perturbedFenchelYoung
    from pyepo.model.ort.shortestpath import shortestPathModel

    model = shortestPathModel((5, 5))
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        data = optDataset(model, x.numpy(), cost.numpy())
    _, costs, decisions, values = (torch.as_tensor(part) for part in (data.feats, data.costs, data.sols, data.objs))
    spo, young = SPOPlus(model), perturbedFenchelYoung(model, n_samples=3, sigma=1.0)
    difference = perturbationGradient(model, sigma=1.0, two_sides=True)
    return {
        "SPO+": lambda found, which: spo(found, costs[which], decisions[which], values[which]),
        "Fenchel-Young, 3 samples": lambda found, which: young(found, decisions[which]),
        "two-sided difference": lambda found, which: difference(found, costs[which]),
    }


def epoch(step: Step, x: torch.Tensor) -> float:
    """Seconds of an epoch of a fresh net; it always sees the same batches."""
    torch.manual_seed(0)
    net = torch.nn.Linear(x.shape[1], 40)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    start = time.perf_counter()
    for which in torch.randperm(len(x)).split(BATCH):
        loss = step(net(x[which]), which)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dl.set_num_threads(1)
    features, costs = dl.data.shortest_path(2 * TRAIN)
    x, cost = torch.from_numpy(features).float()[TRAIN:], torch.from_numpy(costs)[TRAIN:]
    mine = ours(cost, dl.GridPath(shape=(5, 5)).solve(-cost))
    try:
        other = theirs(x, cost)
    except ImportError as error:
        sys.exit(f"{error}: pip install 'directloss[bench]' brings PyEPO and OR-Tools")
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"seconds an epoch of {TRAIN} paths on a 5x5 grid, batch {BATCH}, one thread, commit {commit or 'unknown'}")
    print(f"{'rule':<28}{'ours':>9}{'PyEPO':>9}{'ratio':>8}{'target':>8}")
    for rule in mine:
        times = [(epoch(mine[rule], x), epoch(other[rule], x)) for _ in range(rounds)]
        fast, slow = (min(column) for column in zip(*times, strict=True))
        print(f"{rule:<28}{fast:>9.4f}{slow:>9.4f}{slow / fast:>8.1f}{TARGET:>8}")


if __name__ == "__main__":
    main()
