"""Figure 3: the loss, and the share of rightly placed entries of y and y_eps, while sorting is learned."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from directloss.errors import UserError
from directloss.experiments.results_command import to_csv
from directloss.experiments.sorting import Config, Step, train
from directloss.files import make_folder, write_atomically

PANELS = (("loss", "squared error"), ("y", "rightly placed by y, %"), ("y_eps", "rightly placed by y(ε), %"))


def run(cells: Sequence[Config], repetitions: int, folder: Path) -> None:
    """Trace every direct cell with both signs of epsilon; write the curves as CSV and the figure as SVG and PNG."""
    if any(cell.method == "gumbel-sinkhorn" for cell in cells):
        raise UserError("gumbel-sinkhorn has no epsilon to trace; choose from direct0, direct1, dsl")
    make_folder(folder)
    curves: list[dict[str, Any]] = []
    for cell in cells:
        for epsilon in (abs(cell.epsilon), -abs(cell.epsilon)):
            config = replace(cell, epsilon=epsilon, patience=0)
            curves += [
                {"method": cell.method, "size": cell.size, "epsilon": epsilon, **point}
                for point in trace(config, repetitions)
            ]
    write_atomically(folder / "dynamics.csv", to_csv(curves))
    draw(curves, folder / "dynamics")
    print(f"Wrote {folder / 'dynamics.csv'}, .svg and .png")


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


def draw(curves: Sequence[dict[str, Any]], path: Path) -> None:
    """One row of panels; colour is the size, a full line is a negative epsilon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    groups = sorted(
        {(str(c["method"]), int(c["size"]), float(c["epsilon"])) for c in curves}, key=lambda g: (g[1], g[2])
    )
    colors = {size: f"C{index}" for index, size in enumerate(sorted({group[1] for group in groups}))}
    for method, size, epsilon in groups:
        points = [c for c in curves if (c["method"], c["size"], c["epsilon"]) == (method, size, epsilon)]
        for axis, (name, label) in zip(axes, PANELS, strict=True):
            axis.plot(
                [float(point["epoch"]) for point in points],
                [float(point[name]) for point in points],
                color=colors[size],
                linestyle="-" if epsilon < 0 else "--",
                label=f"d = {size}, ε = {epsilon:g}",
            )
            axis.set_xlabel("epoch")
            axis.set_title(label, fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 102)
    axes[2].set_ylim(0, 102)
    axes[-1].legend(fontsize=8, frameon=False)
    for suffix in ("svg", "png"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, dpi=120, metadata={"Date": None} if suffix == "svg" else None)
        write_atomically(path.with_suffix(f".{suffix}"), buffer.getvalue())
