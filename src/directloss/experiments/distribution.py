"""Figure 1, ``directloss distribution``: all structures as the scale of the noise grows, beside Gibbs.

With one Gumbel for every *structure*, ``P(y)`` is proportional to ``exp(<mu, y> / sigma)``. With one for every *entry*,
as here, it is not, and the paper leaves open how far the two are apart: measured here is the total variation distance
to the Gibbs distribution at the temperature sigma, and at the temperature that comes closest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from directloss.experiments.audit import draw_instance
from directloss.lab import figures
from directloss.lab.experiment import Context, Drawing, Experiment
from directloss.lab.options import option
from directloss.lab.table import Column, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

SIGMAS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)
STRUCTURES = ("matching", "subset", "choice")  # whose scores are one tensor


@dataclass(frozen=True)
class Instance:
    """What is perturbed: a structure with scores drawn from a seed."""

    structure: str = option(help="With commas.", name="structures", of=lambda: STRUCTURES, preset="matching,subset")
    size: int = option(3, "Of the structure. Default 3, of a subset 4.", least=2)
    k: int = option(0, "How many of a subset. Default 2.", least=1)
    seed: int = option(0, "Of the scores.", least=0, preset=0)


def figure_1(structure: str) -> Instance:
    return Instance("subset", 4, 2) if structure == "subset" else Instance(structure, 3)


INSTANCES = (figure_1("matching"), figure_1("subset"))


def train(config: Instance, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in repetitions:
        yield number, {"points": sweep(config, context)}


def sweep(instance: Instance, context: Context = Context()) -> list[Line]:
    """For each sigma: the probability of every structure with its error, Gibbs', and their distances."""
    import torch

    from directloss.judging.exact import exact

    structure, scores, cost = draw_instance(instance.structure, instance.size, instance.k, instance.seed)
    assert isinstance(scores, torch.Tensor)
    every = structure.enumerate(scores.double()).flatten(1)
    values = every @ scores.double().flatten()
    generator = torch.Generator().manual_seed(instance.seed)
    points = []
    for done, sigma in enumerate(SIGMAS):
        context.progress(done / len(SIGMAS), f"σ = {sigma:g}")
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


def distance(one: "Tensor", other: "Tensor") -> float:
    """Total variation: the largest difference of the probabilities of any event."""
    return ((one - other).abs().sum() / 2).item()


def _closest(probabilities: "Tensor", values: "Tensor", sigma: float) -> tuple[float, float]:
    """The Gibbs temperature, in units of sigma, that comes closest in total variation, and its distance."""
    import torch

    ratios = torch.logspace(-1, 1, 401, dtype=torch.float64)
    gibbs = torch.softmax(values / (sigma * ratios[:, None]), 1)
    distances = (gibbs - probabilities).abs().sum(1) / 2
    return ratios[distances.argmin()].item(), distances.min().item()


def draw(rows: Sequence[Any]) -> "Figure":
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


def points(rows: Sequence[Any]) -> list[Line]:
    unknown = dict.fromkeys(("distance", "closest_distance", "closest_temperature"))
    names = ("structure", "size", "k")
    return [{**{name: row[name] for name in names}, **unknown, **point} for row in rows for point in row["points"]]


EXPERIMENT = Experiment(
    name="distribution",
    command="distribution",
    title="What the scale of the noise does (figure 1)",
    text="Compute the probability of every structure as the scale of the noise grows, from one structure to all alike: "
    "figure 1 of the paper. With one Gumbel variable for each entry the distribution is not Gibbs, at no temperature.",
    config=Instance,
    train=train,
    axes=("structure",),
    recipes={"figure-1": figure_1},
    columns=(
        Column("structure", "structure", setting=True),
        Column("size", "size", setting=True),
        Column("k", "k", show=lambda line: str(line["k"] or ""), setting=True),
        Column("sigma", "σ", show="{:g}"),
        Column("_largest", "largest P(y)", show=lambda line: f"{max(line['probabilities']):.4f}"),
        Column("error", "± error", show="{:.4f}"),
        Column("distance", "to Gibbs at σ", show="{:.4f}"),
        Column("closest_distance", "to the closest Gibbs", show="{:.4f}"),
        Column("closest_temperature", "its temperature / σ", show="{:.2f}"),
    ),
    lines=points,
    figures=(Drawing("distribution", "Probabilities over the noise's scale, and distances to Gibbs", draw, points),),
    by=("structure", "seed"),
    spread=lambda rows: f"standard error of a probability at most {max(p['error'] for p in points(rows)):.4f}",
)
