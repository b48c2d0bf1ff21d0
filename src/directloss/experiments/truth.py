"""The table of truth, ``directloss truth``: what every rule's gradient is, beside the exact one, on four structures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from directloss.experiments.audit import draw_instance, rule_of, try_rule
from directloss.experiments.rules import FOUR, RULES
from directloss.lab.experiment import Context, Drawing, Experiment
from directloss.lab.options import option
from directloss.lab.table import Column, Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Small enough to enumerate; a chain has two labels and transitions, a tree so many nodes.
SIZES = {"choice": 5, "subset": 5, "matching": 3, "chain": 3, "spanning_tree": 4, "knapsack": 5, "gridpath": 3}
SCALE = 1.0
PANELS = {
    "bias": "bias, in lengths of the exact\ngradient (hollow: none is seen)",
    "deviation": "standard deviation of a call,\nin the same (none: no noise)",
    "direction": "cosine of the mean\nwith the exact gradient",
    "zero": "share of zero gradients\n",
}
LEAST = 1e-3  # a bias that is seen, unless its own error is larger
MARKS = (
    ("o", "#2878b5"),
    ("s", "#d1662b"),
    ("D", "#3a923a"),
    ("^", "#8c6bb1"),
    ("v", "#b5a028"),
    ("P", "#777777"),
    ("X", "#c44e87"),
)


@dataclass(frozen=True)
class Config:
    """One rule on one structure: normal scores, unit scale, the share of a target's ones that is missed as the cost."""

    rule: str = option(of=lambda: tuple(RULES), name="rules", help="Losses and layers.", preset=",".join(RULES))
    structure: str = option(of=lambda: tuple(SIZES), name="structures", help="Enumerated.", preset=",".join(FOUR))
    calls: int = option(100_000, "Of the rule, for each setting that draws noise.", least=2, preset=100_000)
    seed: int = option(0, "Of scores and noise.", least=0, preset=0)


def fitting(config: Config) -> list[Config]:
    """The cell, if the rule takes the structure; the table of rules speaks of the four only."""
    other = config.structure not in FOUR and set(RULES[config.rule].fits) >= set(FOUR)
    return [config] if other or config.structure in RULES[config.rule].fits else []


def check(cells: Sequence[Config], context: Context) -> None:
    for cell in cells:
        instance = draw_instance(cell.structure, SIZES[cell.structure], 2, cell.seed)
        try_rule(cell.rule, instance, RULES[cell.rule].settings)


def train(config: Config, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    import torch

    from directloss.judging.audit import audit
    from directloss.judging.measurement import gradient_of

    structure, scores, cost = draw_instance(config.structure, SIZES[config.structure], 2, config.seed)
    rule = rule_of(config.rule)
    for number in repetitions:
        found = audit(
            rule,
            scores,
            cost,
            structure,
            scale=SCALE,
            settings=RULES[config.rule].settings,
            repetitions=config.calls,
            generator=torch.Generator().manual_seed(config.seed),
            on_progress=lambda done, total: context.progress(done / total, ""),
        )
        lengths = {row.target: gradient_of(found.exact[SCALE], row.target).value.norm().item() for row in found.rows}
        exact = {target: gradient_of(found.exact[SCALE], target).value.flatten() for target in lengths}
        rows = []
        for row in found.rows:
            length, mean = lengths[row.target], row.mean.flatten()
            rows.append(
                {
                    "target": row.target,
                    "settings": ", ".join(f"{name} {value}" for name, value in row.settings.items()) or "-",
                    "bias": row.bias / length,
                    "bias_error": row.bias_error / length,
                    "deviation": row.deviation / length,
                    "cosine": row.cosine,
                    "direction": torch.nn.functional.cosine_similarity(mean, exact[row.target], dim=0).item(),
                    "zero": row.zero,
                    "seconds": row.seconds,
                }
            )
        yield number, {"rows": rows}


def lines(rows: Sequence[Any]) -> list[Line]:
    """A line for each setting and gradient."""
    named = [(row.config["rule"], row.config["structure"], line) for row in rows for line in row["rows"]]
    return [{"rule": rule, "structure": structure, **line} for rule, structure, line in named]


def draw(rows: Sequence[Any]) -> "Figure":
    """A line of dots for each rule and setting, a colour for each structure; the gradient to the scores."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    shown = [line for line in lines(rows) if line["target"] == "scores"]
    names = list(dict.fromkeys((line["rule"], line["settings"]) for line in shown))
    structures = list(dict.fromkeys(line["structure"] for line in shown))
    figure = Figure(figsize=(2.3 * len(PANELS) + 3, 1.2 + 0.27 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True, squeeze=False)[0]
    for axis, (name, label) in zip(axes, PANELS.items(), strict=True):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.3)
        axis.tick_params(axis="x", labelsize=7)
        axis.set_title(label, fontsize=8)
        for line in shown:
            if name == "deviation" and line[name] == 0:
                continue
            least = max(line["bias_error"], LEAST) if name == "bias" else -1.0  # a logarithmic axis has no zero
            mark, color = MARKS[structures.index(line["structure"])]
            beside = 0.6 * (structures.index(line["structure"]) + 0.5) / len(structures) - 0.3
            axis.plot(
                max(line[name], least),
                names.index((line["rule"], line["settings"])) + beside,
                mark,
                color=color,
                markerfacecolor=color if line[name] > least else "none",
                markersize=4,
            )
    axes[0].set_xscale("log")
    axes[1].set_xlim(left=0)
    axes[0].set_yticks(range(len(names)), [f"{rule}  {settings}".rstrip(" -") for rule, settings in names], fontsize=7)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    handles = [
        Line2D([], [], linestyle="", marker=mark, color=color)
        for _, (mark, color) in zip(structures, MARKS, strict=False)
    ]
    figure.legend(handles, structures, loc="outside upper center", ncols=len(MARKS), fontsize=8, frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="truth",
    command="truth",
    title="The table of truth",
    text="Put the gradient of every rule, each with some of its settings, beside the exact gradient of the expected "
    "loss, on structures small enough to enumerate. Lengths are in those of the exact gradient. A rule that is not an "
    "estimate of it, such as one that follows a target, has a bias by design: its direction says more.",
    config=Config,
    train=train,
    check=check,
    axes=("rule", "structure"),
    expand=fitting,
    threads=1,  # small batches: a second process (--jobs 2) helps, a second thread does not
    columns=(
        Column("rule", "rule"),
        Column("structure", "structure"),
        Column("settings", "settings"),
        Column("target", "gradient to"),
        Column("bias", "bias", show="{:.3f}"),
        Column("bias_error", "± error", show="{:.3f}"),
        Column("deviation", "std", show="{:.2f}"),
        Column("direction", "cosine of the mean", show="{:.3f}"),
        Column("cosine", "of a call", show="{:.3f}"),
        Column("zero", "zero %", show=lambda line: f"{100 * line['zero']:.1f}"),
        Column("seconds", "µs/call", show=lambda line: f"{1e6 * line['seconds']:.2f}"),
    ),
    lines=lines,
    figures=(Drawing("truth", "Every rule beside the exact gradient to the scores", draw, lines),),
    by=("calls", "seed"),
    spread=lambda rows: f"standard errors over {rows[0].config['calls']:,} calls for each setting",
)
