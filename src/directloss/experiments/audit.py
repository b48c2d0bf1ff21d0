"""A loss or layer against exact gradients, ``directloss audit``: bias, variance, direction and cost."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from directloss.errors import UserError
from directloss.experiments.rules import RULES, load_rule, parse_settings
from directloss.lab.experiment import Context, Drawing, Experiment
from directloss.lab.options import load_own, option, split
from directloss.lab.table import Column, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from directloss.parts import Scores
    from directloss.structures.base import Structure

STRUCTURES = ("matching", "subset", "choice", "chain", "spanning_tree", "knapsack", "gridpath")
MOST = 5040  # structures that are enumerated
_LARGEST = 1e30  # in float32, products with noise and costs stay finite


@dataclass(frozen=True)
class Config:
    """What is audited: the instance is drawn from the seed."""

    structure: str = option("matching", "Enumerated.", of=lambda: STRUCTURES, own=True, preset="matching")
    size: int = option(3, "Of each axis; a tree's nodes, a chain's positions.", least=2, preset=3)
    k: int = option(2, "How many of size, for a subset.", preset=2)
    scales: str = option("1", "Of the noise, with commas.", preset="1")
    epsilons: str = option("", "With commas, both signs. Default: chosen from the losses.", preset="")
    samples: str = option("1", "Noise draws for each call, with commas.", preset="1")
    repetitions: int = option(300_000, "Calls for each setting.", least=2, preset=300_000)
    seed: int = option(0, "Of scores and noise.", least=0, preset=0)
    loss: str = option("direct_loss", "Loss or layer.", of=lambda: tuple(RULES), own=True, preset="direct_loss")
    settings: str = option("", "Further ones of the rule, e.g. temperature=.5,1;iterations=5.", preset="")


def numbers(name: str, text: str, least: float = -math.inf) -> list[float]:
    found: list[float] = split(name, float, text) if text else []
    if not all(abs(number) <= _LARGEST and number >= least for number in found):
        raise UserError(f"--{name} has {text!r}; expected numbers of magnitude at most {_LARGEST:g}, from {least:g}")
    return found


def make_structure(name: str, size: int, k: int) -> tuple["Structure", tuple[tuple[int, ...], ...]]:
    """The structure by its name, and the shape of each part of its scores."""
    import directloss as dl

    if name == "subset" and not 1 <= k < size:
        raise UserError(f"--k is {k}; expected 1 to {size - 1}, fewer than --size")
    kinds: dict[str, Callable[[], tuple[Any, tuple[tuple[int, ...], ...]]]] = {
        "matching": lambda: (dl.Matching(), ((size, size),)),
        "choice": lambda: (dl.Choice(), ((size,),)),
        "subset": lambda: (dl.Subset(k), ((size,),)),
        "chain": lambda: (dl.Chain(), ((size, 2), (2, 2))),  # two labels, and transitions between them
        "spanning_tree": lambda: (dl.SpanningTree(), ((size * (size - 1) // 2,),)),
        "knapsack": lambda: (dl.Knapsack(list(range(1, size + 1)), size * (size + 1) // 4), ((size,),)),
        "gridpath": lambda: (dl.GridPath(), ((size, size),)),
    }
    if name in kinds:
        return kinds[name]()
    made = load_own(name)
    made = made if isinstance(made, dl.Structure) else made(size)
    if not isinstance(made, dl.Structure):
        raise UserError(f"{name} is not a structure, nor does it make one from a size")
    return made, ((size,) * made.entry_dims,)


def draw_instance(name: str, size: int, k: int, seed: int) -> tuple["Structure", "Scores", "Tensor"]:
    """A structure, normal scores (*E) for each part, and the share of a target's ones that a structure misses, as cost.

    The target is the first structure that is not empty.
    """
    import torch

    from directloss import costs

    if size > MOST:
        raise UserError(f"--size is {size}, more than the {MOST:,} structures; take a smaller one")
    structure, shapes = make_structure(name, size, k)
    zeros = tuple(torch.zeros(()).expand(shape) for shape in shapes)
    try:
        structure.check_count(zeros if len(zeros) > 1 else zeros[0], MOST)
    except ValueError as error:
        raise UserError(f"--size is {size}: {error}") from None
    generator = torch.Generator().manual_seed(seed)
    parts = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    scores = parts if len(parts) > 1 else parts[0]
    every = structure.enumerate(scores)
    target = every[int(every.flatten(1).any(1).nonzero()[0])]
    return structure, scores, costs.hamming(target) / (2 * target.sum())


def rule_of(name: str) -> Callable[..., Any]:
    """A rule of the table, or the user's own."""
    found: Callable[..., Any] = load_rule(name) if name in RULES else load_own(name)
    return found


def try_rule(name: str, instance: tuple["Structure", "Scores", "Tensor"], grid: Mapping[str, Sequence[Any]]) -> None:
    """Call a rule once. Raise UserError if it does not take the structure or a setting."""
    import torch

    from directloss.judging.calls import accepted, check_settings, estimate

    structure, scores, cost = instance
    rule = rule_of(name)
    fixed = {"epsilon": 1.0, "reduction": "none", "generator": torch.Generator().manual_seed(0)}
    try:
        first = {setting: values[0] for setting, values in check_settings(rule, grid).items()}
        next(estimate(rule, scores, cost, structure.for_batch(0), 1.0, accepted(rule, fixed) | first, 2))
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} on {structure!r}: {error}") from None


def check(cells: Sequence[Config], context: Context) -> None:
    for cell in cells:
        instance, grid = draw_instance(cell.structure, cell.size, cell.k, cell.seed), parse_settings(cell.settings)
        if cell.loss in RULES:
            try_rule(cell.loss, instance, grid)
        numbers("scales", cell.scales or ",", 0.0)
        if 0 in numbers("epsilons", cell.epsilons):
            raise UserError("--epsilons has 0; expected numbers other than 0")
        if any(count != int(count) for count in numbers("samples", cell.samples or ",", 1.0)):
            raise UserError(f"--samples has {cell.samples!r}; expected whole numbers from 1 with commas, e.g. 1,5")


def train(config: Config, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    import torch

    from directloss.judging.audit import audit

    structure, scores, cost = draw_instance(config.structure, config.size, config.k, config.seed)
    for number in repetitions:
        found = audit(
            rule_of(config.loss),
            scores,
            cost,
            structure,
            scale=numbers("scales", config.scales),
            epsilons=numbers("epsilons", config.epsilons) or None,
            samples=[int(count) for count in numbers("samples", config.samples)],
            settings=parse_settings(config.settings),
            repetitions=config.repetitions,
            generator=torch.Generator().manual_seed(config.seed),
            on_progress=lambda done, total: context.progress(done / total, ""),
        )
        yield number, summarize(found)


def summarize(found: Any) -> dict[str, Any]:
    """What is stored of an audit."""
    slopes = [
        {"target": target, "rule": rule, "scale": scale, "slope": _finite(slope), "error": _finite(error)}
        for target in ("scores", "scale")
        for (rule, scale), (slope, error) in found.slopes(target).items()
    ]
    exact = [
        {
            "scale": scale,
            "loss": truth.loss.value.item(),
            "loss_error": truth.loss.error.item(),
            "gradient": truth.to_scores.value.norm().item(),
            "gradient_error": truth.to_scores.error.norm().item(),
        }
        for scale, truth in found.exact.items()
    ]
    best = [{"scale": scale, "rule": (row := found.best(scale)).rule, **row.settings} for scale in found.exact if scale]
    return {"rows": found.records(), "slopes": slopes, "exact": exact, "best": best}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def lines(rows: Sequence[Any]) -> list[Line]:
    """A line for each setting and gradient."""
    return [line for row in rows for line in row["rows"]]


def describe(line: Line) -> str:
    """A line's settings besides those that have columns of their own."""
    from directloss.judging.drawing import NUMBERS

    shown = {"target", "scale", "rule", "epsilon", "samples", *NUMBERS}
    shown |= {"sides"} if "epsilon" in line else set()  # the rule's name has them
    return ", ".join(f"{name} {value}" for name, value in line.items() if name not in shown)


def _draw(rows: Sequence[Any]) -> "Figure":
    from directloss.judging.drawing import draw

    return draw(lines(rows))


def notes(rows: Sequence[Any]) -> list[str]:
    """The exact values, the orders of the bias and the best setting of each audit."""
    found = []
    for row in rows:
        found += [
            f"exact at σ = {one['scale']:g}: loss {one['loss']:.4f} ± {one['loss_error']:.4f}, "
            f"gradient of length {one['gradient']:.4f} ± {one['gradient_error']:.4f}"
            for one in row["exact"]
        ]
        found += [
            f"bias to the {slope['target']}, σ = {slope['scale']:g}, {slope['rule']}: "
            f"order {slope['slope']:.2f} ± {slope['error']:.2f} in ε (theory: 1 for one side, 2 for both)"
            for slope in row["slopes"]
            if slope["slope"] is not None and slope["error"] is not None
        ]
        found += [
            f"most signal for its cost at σ = {best['scale']:g}: {best['rule']}"
            + (f", ε = {best['epsilon']:.3g}" if "epsilon" in best else "")
            + (f", {best['samples']} sample{'s' * (best['samples'] > 1)}" if "samples" in best else "")
            for best in row["best"]
        ]
    return found


def _if_any(name: str, show: str) -> Callable[[Line], str]:
    return lambda line: show.format(line[name]) if name in line else "-"


EXPERIMENT = Experiment(
    name="audit",
    command="audit",
    title="Gradients against the exact ones",
    text="Compare the gradients of a loss or layer with exact ones, on an instance small enough to enumerate every "
    "structure: bias, variance, direction and cost. The two-sided rule of direct_loss has a bias of second order in "
    "epsilon, and less variance.",
    config=Config,
    train=train,
    check=check,
    columns=(
        Column("target", "gradient to"),
        Column("scale", "σ", show="{:g}"),
        Column("rule", "rule"),
        Column("epsilon", "ε", show=_if_any("epsilon", "{:.3g}")),
        Column("samples", "samples", show=_if_any("samples", "{}")),
        Column("settings", "settings", show=describe),
        Column("bias", "bias", show="{:.4f}"),
        Column("bias_error", "± error", show="{:.4f}"),
        Column("deviation", "std", show="{:.3f}"),
        Column("cosine", "cosine", show="{:.3f}"),
        Column("zero", "zero %", show=lambda line: f"{100 * line['zero']:.1f}"),
        Column("seconds", "µs/call", show=lambda line: f"{1e6 * line['seconds']:.2f}"),
    ),
    lines=lines,
    notes=notes,
    figures=(Drawing("audit", "Bias, deviation, cosine and zero gradients", _draw, lines),),
    by=[one.name for one in fields(Config)],
    spread=lambda rows: f"standard errors over {rows[0].config['repetitions']:,} calls for each setting",
)
