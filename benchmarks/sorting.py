"""Seconds for each epoch and repetition of the sorting experiment: ours against a plain step and Gumbel-Sinkhorn.

    python benchmarks/sorting.py [--sizes 10,40,100] [--epochs 60] [--threads 2] [--markdown FILE] [--store FILE]

All train the paper's recipe (ten sequences, five noise samples, both solves) in one process. *ours*: repetitions
stacked, as `directloss sort` trains them. *plain*: one repetition, `torch.nn` modules, SciPy in a loop over the
matrices, dense differences. *Gumbel-Sinkhorn*: ours, with 20 iterations and 10 samples. Epochs are timed after a
warm-up of as many, so that the matrices are those of training and not of its start. Ratios are theirs over ours.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

import directloss as dl
from directloss.experiments.sorting import TABLE_2, Config, paper
from directloss.experiments.sorting_stack import train
from directloss.lab.provenance import code_version, machine
from directloss.lab.store import Key, Store
from directloss.lab.table import markdown


def stacked_seconds(config: Config, epochs: int) -> float:
    """Of one epoch of one repetition, in a full stack."""
    count = config.stack
    stamps: list[float] = []
    config = replace(config, max_epochs=2 * epochs, patience=0)
    for _ in train(config, range(count), on_step=lambda step: stamps.append(time.perf_counter())):
        pass
    return (stamps[-1] - stamps[epochs - 1]) / (len(stamps) - epochs) / count


def plain_seconds(size: int, epochs: int) -> float:
    """Of one epoch of the same step, written down plainly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(10, size, generator=generator)
    ranks = x.argsort(-1, descending=True).argsort(-1)
    target = nn.functional.one_hot(ranks, size).float()
    cost = (x**2).unsqueeze(-2) * (1 - 2 * target)
    net = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, size))
    scale_net = nn.Sequential(nn.Linear(size, 1), nn.Softplus())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    scale_optimizer = torch.optim.SGD(scale_net.parameters(), lr=1e-6)
    gumbel = torch.distributions.Gumbel(0.0, 1.35)

    def solve(matrices: torch.Tensor) -> torch.Tensor:
        flat = matrices.reshape(-1, size, size).numpy()
        columns = np.stack([linear_sum_assignment(matrix, maximize=True)[1] for matrix in flat])
        return nn.functional.one_hot(torch.from_numpy(columns), size).float().reshape(matrices.shape)

    start = 0.0
    for epoch in range(2 * epochs):
        if epoch == epochs:
            start = time.perf_counter()
        noise = gumbel.sample((5, 10, size, size)) - 1.35 * 0.5772
        theta = net(x.unsqueeze(-1)) + scale_net(x).unsqueeze(-1) * noise
        y = solve(theta.detach())
        y_eps = solve(theta.detach() - 12.0 * cost)
        optimizer.zero_grad()
        scale_optimizer.zero_grad()
        (theta * (y - y_eps)).sum().backward()
        optimizer.step()
        scale_optimizer.step()
    return (time.perf_counter() - start) / epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,40,100")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--store", type=Path, help="also save the rows in this results file, for the report")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dl.set_num_threads(options.threads)
    facts = f"commit {code_version()}, {machine()}, {options.threads} threads, {options.epochs} epochs"
    print(facts)
    header = ["d", "ours, ms", "plain, ms", "plain / ours", "Sinkhorn, ms", "Sinkhorn / ours", "paper, ms (K80)"]
    lines = []
    for size in map(int, options.sizes.split(",")):
        ours = stacked_seconds(paper("dsl", size, 0), options.epochs)
        plain = plain_seconds(size, options.epochs)
        sinkhorn = stacked_seconds(paper("gumbel-sinkhorn", size, 0), max(3, options.epochs // 10))
        theirs = TABLE_2["dsl"].get(size)
        milliseconds = f"{1e3 * ours:.2f}", f"{1e3 * plain:.1f}", f"{1e3 * sinkhorn:.1f}"
        ratios = f"{plain / ours:.1f}", f"{sinkhorn / ours:.1f}"
        last = f"{1e3 * theirs:.0f}" if theirs else "-"
        lines.append([str(size), milliseconds[0], milliseconds[1], ratios[0], milliseconds[2], ratios[1], last])
        print(dict(zip(header, lines[-1], strict=True)), flush=True)
        if options.store:
            config = {"benchmark": "sorting", "size": size, "commit": code_version(), "seed": 0}
            config["spread"] = f"mean of {options.epochs} epochs, {options.threads} threads, one process"
            result = {"ours_ms": 1e3 * ours, "plain_ms": 1e3 * plain, "sinkhorn_ms": 1e3 * sinkhorn}
            Store(options.store).add(Key("speed", config), [(0, result)])
    if options.markdown:
        options.markdown.write_text(f"{facts}\n\n{markdown(header, lines)}")


if __name__ == "__main__":
    main()
