"""What share of the machine's rate a training step of the neighbours' experiment reaches.

    python benchmarks/step.py [--data cifar-10] [--methods dsl,softmax-knn] [--net whitenet] [--widths 32,64]
                              [--precision bfloat16] [--rounds 7] [--threads 2] [--profile] [--markdown FILE]

A step is all of it: images varied and normalised, forward, loss, dense backward, optimiser. Its floating-point
operations are those that torch executes (matrix products and convolutions, forward and backward; what has no gradient
is not counted). The machine's rate is that of one large convolution, 256 to 256 channels on 15 x 15, forward, in the
same process, in the step's own precision and in turns with the steps; each is the best of all rounds. `--profile` adds
where the time goes.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from directloss import data
from directloss.experiments.images import Images
from directloss.experiments.memory import keep_freed_memory
from directloss.experiments.neighbor_recipes import PRECISIONS
from directloss.experiments.neighbor_training import Training
from directloss.experiments.neighbors import EXPERIMENT
from directloss.experiments.ranks import Ranks
from directloss.lab.provenance import code_version, machine
from directloss.lab.table import markdown


class LargeConvolution:
    """The rate to compare with, in a given precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        layout = {"dtype": dtype, "memory_format": torch.channels_last}
        self.filters = nn.Conv2d(256, 256, 3, padding=1, bias=False).to(**layout)
        self.images = torch.randn(200, 256, 15, 15).to(**layout)

    @torch.no_grad()
    def run(self) -> None:
        self.filters(self.images)


def count(run) -> float:
    """The floating-point operations of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def best_seconds(runs: dict[str, object], rounds: int) -> dict[str, float]:
    """The fastest of so many rounds of each, in turns, after one that is not timed."""
    seconds = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: min(times[1:]) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar-10", choices=data.SOURCES)
    parser.add_argument("--methods", default="dsl,softmax-knn")
    parser.add_argument("--net", default="whitenet")
    parser.add_argument("--widths", default="32,64")
    parser.add_argument("--precision", default="bfloat16", choices=PRECISIONS)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="print where the time of one step goes")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    facts = f"commit {code_version()}, {machine()}, {options.threads} threads, {options.precision}"
    facts += f", {options.data}, k = {options.k}"
    print(facts)
    images = Images(data.load(options.data), 200 if options.data == "digits" else 5000)
    lines = []
    for width in map(int, options.widths.split(",")):
        runs, sizes = {"": LargeConvolution(getattr(torch, options.precision)).run}, {}
        for method in options.methods.split(","):
            config = EXPERIMENT.recipes["best"](options.data, method, options.k, options.net, 0)
            config = replace(config, width=width, sparse=False, precision=options.precision)
            training = Training(config, images, Ranks())
            training.net.train()
            batch = next(training.batches())
            runs[method] = lambda training=training, batch=batch: training.step(*batch)
            sizes[method] = len(batch[0]) + len(batch[1])
        work = {name: count(run) for name, run in runs.items()}
        seconds = best_seconds(runs, options.rounds)
        rates = {name: work[name] / seconds[name] / 1e9 for name in runs}
        for method, size in sizes.items():
            figures = (work[method] / 1e9, 1e3 * seconds[method], size / seconds[method])
            figures += (rates[method], rates[""], 100 * rates[method] / rates[""])
            lines.append([f"{options.net}-{width}", method, *(f"{figure:.0f}" for figure in figures)])
            print(lines[-1], flush=True)
            if options.profile:
                with profile(activities=[ProfilerActivity.CPU]) as seen:
                    runs[method]()
                print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=50))
    header = [
        "net",
        "method",
        "GFLOP a step",
        "ms a step",
        "images/s",
        "GFLOPS",
        "large convolution, GFLOPS",
        "share, %",
    ]
    text = markdown(header, lines)
    print(text)
    if options.markdown:
        options.markdown.write_text(f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
