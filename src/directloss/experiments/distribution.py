"""Figure 1: the distribution over all structures as the scale of the noise grows, beside the Gibbs distribution.

With one Gumbel for every *structure*, ``P(y)`` is proportional to ``exp(<mu, y> / sigma)``. With one for every *entry*,
as here, it is not, and the paper leaves open how far the two are apart: measured here is the total variation distance
to the Gibbs distribution at the temperature sigma, and at the temperature that comes closest.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from directloss.experiments import figures
from directloss.experiments.audit_command import draw_instance
from directloss.experiments.results_command import to_csv
from directloss.files import write_atomically
from directloss.judging.exact import exact
from directloss.runs import config_hash, open_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGMAS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)


@dataclass(frozen=True)
class Instance:
    """What is perturbed: a structure with scores drawn from a seed."""

    structure: str
    size: int
    k: int = 0
    seed: int = 0


INSTANCES = (Instance("matching", 3), Instance("subset", 4, 2))


def run(instances: Sequence[Instance], store: Path, output: Path) -> None:
    """Compute what the store does not have; write the curves as CSV and the figure as SVG and PNG."""
    saved = open_store(store, output)
    rows = []
    for instance in instances:
        config = asdict(instance)
        if not saved.finished("distribution", config):
            saved.add("distribution", config, [(0, {"points": sweep(instance)})])
        rows.append(next(saved.rows("distribution", config_hash("distribution", config))))
    lines = [{"structure": row["structure"], "size": row["size"], **point} for row in rows for point in row["points"]]
    write_atomically(output / "distribution.csv", to_csv(lines))
    figures.save(draw(rows), output / "distribution")
    print(f"Wrote {output / 'distribution.csv'}, .svg and .png; saved in {store}")


def sweep(instance: Instance) -> list[dict[str, Any]]:
    """For each sigma: the probability of every structure with its error, Gibbs', and their distances."""
    structure, scores, cost = draw_instance(instance.structure, instance.size, instance.k, instance.seed)
    every = structure.enumerate(scores.double()).flatten(1)
    values = every @ scores.double().flatten()
    generator = torch.Generator().manual_seed(instance.seed)
    points = []
    for sigma in SIGMAS:
        found = exact(scores, cost, structure, sigma, generator=generator).probabilities
        point: dict[str, Any] = {
            "sigma": sigma,
            "probabilities": found.value.tolist(),
            "error": found.error.max().item(),
        }
        if sigma:
            gibbs = torch.softmax(values / sigma, 0)
            ratio, closest = _closest(found.value, values, sigma)
            point |= {"gibbs": gibbs.tolist(), "distance": distance(found.value, gibbs)}
            point |= {"closest_distance": closest, "closest_temperature": ratio}
        points.append(point)
    return points


def distance(one: Tensor, other: Tensor) -> float:
    """Total variation: the largest difference of the probabilities of any event."""
    return ((one - other).abs().sum() / 2).item()


def _closest(probabilities: Tensor, values: Tensor, sigma: float) -> tuple[float, float]:
    """The Gibbs temperature, in units of sigma, that comes closest in total variation, and its distance."""
    ratios = torch.logspace(-1, 1, 401, dtype=torch.float64)
    gibbs = torch.softmax(values / (sigma * ratios[:, None]), 1)
    distances = (gibbs - probabilities).abs().sum(1) / 2
    return ratios[distances.argmin()].item(), distances.min().item()


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """A row for each instance: probabilities over sigma (Gibbs dashed), and the distances."""
    figure, axes = figures.panels(2, len(rows), width=5.5)
    for row, (left, right) in zip(rows, zip(axes[::2], axes[1::2], strict=True), strict=True):
        points = [point for point in row["points"] if point["sigma"]]
        sigmas = [point["sigma"] for point in points]
        for index in range(len(points[0]["probabilities"])):
            color = figures.COLORS[index % len(figures.COLORS)]
            left.plot(sigmas, [point["probabilities"][index] for point in points], color=color)
            left.plot(sigmas, [point["gibbs"][index] for point in points], "--", color=color, linewidth=1, alpha=0.7)
        size = f"{row['size']} choose {row['k']}" if row["structure"] == "subset" else f"{row['size']} × {row['size']}"
        left.set_title(f"{row['structure']} {size}: P(y), one noise an entry (full), Gibbs (dashed)", fontsize=10)
        for name, text, color in zip(
            ("distance", "closest_distance"),
            ("to Gibbs at temperature σ", "to the closest Gibbs"),
            figures.COLORS,
            strict=False,
        ):
            right.plot(sigmas, [point[name] for point in points], label=text, color=color)
        right.set_title("total variation distance", fontsize=10)
        right.legend(fontsize=8, frameon=False)
        for axis in (left, right):
            figures.use_log(axis, "x")
            axis.set_xlabel("σ")
            axis.set_ylim(bottom=0)
    return figure
