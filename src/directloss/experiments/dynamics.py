"""Figure 3: the loss, and the share of rightly placed entries of y and y_eps, while sorting is learned."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from directloss.errors import UserError
from directloss.experiments import figures
from directloss.experiments.results_command import to_csv
from directloss.experiments.sorting import Config, Step, train
from directloss.files import write_atomically
from directloss.runs import config_hash, open_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (("loss", "squared error"), ("y", "rightly placed by y, %"), ("y_eps", "rightly placed by y(ε), %"))


def run(cells: Sequence[Config], repetitions: int, store: Path, folder: Path) -> None:
    """Trace every direct cell with both signs of epsilon; write the curves as CSV and the figure as SVG and PNG."""
    if any(cell.method == "gumbel-sinkhorn" for cell in cells):
        raise UserError("gumbel-sinkhorn has no epsilon to trace; choose from direct0, direct1, dsl")
    saved = open_store(store, folder)
    rows = []
    for cell in cells:
        for epsilon in (abs(cell.epsilon), -abs(cell.epsilon)):
            config = replace(cell, epsilon=epsilon, patience=0)
            key = {**asdict(config), "repetitions": repetitions}
            if not saved.finished("dynamics", key):
                saved.add("dynamics", key, [(0, {"curve": trace(config, repetitions)})])
            rows.append(next(saved.rows("dynamics", config_hash("dynamics", key))))
    write_atomically(folder / "dynamics.csv", to_csv(list(points(rows))))
    figures.save(draw(rows), folder / "dynamics")
    print(f"Wrote {folder / 'dynamics.csv'}, .svg and .png; saved in {store}")


def points(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The curves, a line for each epoch."""
    for row in rows:
        for point in row["curve"]:
            yield {**{name: row[name] for name in ("method", "size", "epsilon")}, **point}


def trace(config: Config, repetitions: int) -> list[dict[str, float]]:
    """The mean over repetitions of every epoch's loss and shares."""
    steps: list[Step] = []
    for _ in train(config, range(repetitions), on_step=steps.append):
        pass
    error = torch.stack([step.error for step in steps]).mean(1)
    right = 100 * torch.stack([step.right for step in steps]).mean(2)
    return [
        {"epoch": epoch, "loss": error[epoch].item(), "y": right[epoch, 0].item(), "y_eps": right[epoch, 1].item()}
        for epoch in range(len(steps))
    ]


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """One row of panels; colour is the size, a full line is a negative epsilon."""
    figure, axes = figures.panels(len(PANELS))
    colors = dict(zip(sorted({row["size"] for row in rows}), cycle(figures.COLORS), strict=False))
    for row in sorted(rows, key=lambda row: (row["size"], row["epsilon"])):
        for axis, (name, label) in zip(axes, PANELS, strict=True):
            axis.plot(
                [point["epoch"] for point in row["curve"]],
                [point[name] for point in row["curve"]],
                color=colors[row["size"]],
                linestyle="-" if row["epsilon"] < 0 else "--",
                label=f"d = {row['size']}, ε = {row['epsilon']:g}",
            )
            axis.set_xlabel("epoch")
            axis.set_title(label, fontsize=10)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 102)
    axes[2].set_ylim(0, 102)
    axes[-1].legend(fontsize=8, frameon=False)
    return figure
