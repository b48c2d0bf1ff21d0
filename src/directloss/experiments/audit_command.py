"""``directloss audit``: the direct loss against exact gradients, as a table and as plots."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from directloss import costs
from directloss.errors import UserError
from directloss.experiments import figures
from directloss.experiments.results_command import to_csv
from directloss.files import write_atomically
from directloss.judging.audit import Audit, audit
from directloss.judging.exact import MOST_STRUCTURES
from directloss.losses.direct import direct_loss
from directloss.runs import config_hash, open_store
from directloss.structures.base import Structure
from directloss.structures.choice import Choice
from directloss.structures.matching import Matching
from directloss.structures.subset import Subset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("bias", "length of the bias; faint: its standard error"),
    ("deviation", "standard deviation of a call"),
    ("cosine", "cosine of a call with the exact gradient"),
    ("zero", "share of zero gradients"),
)
_LARGEST = 1e30  # in float32, products with noise and costs stay finite
RULES = ("one, ε < 0", "one, ε > 0", "both")


@dataclass(frozen=True)
class Options:
    """What ``directloss audit`` was asked for: the instance is drawn from the seed."""

    structure: str = "matching"
    size: int = 3
    k: int = 2
    scales: str = "1"
    epsilons: str = ""
    samples: str = "1"
    repetitions: int = 300_000
    seed: int = 0


def make_structure(name: str, size: int, k: int) -> tuple[Structure, tuple[int, ...]]:
    """A structure by its name, and the shape of its entries."""
    if name not in ("matching", "subset", "choice"):
        raise UserError(f"--structure has {name!r}; choose from matching, subset, choice")
    if size < 2:
        raise UserError(f"--size is {size}; expected at least 2")
    if size > MOST_STRUCTURES:
        raise UserError(
            f"--size is {size}, and there are at least as many structures, more than the {MOST_STRUCTURES:,} that are "
            "enumerated; take a smaller instance"
        )
    if name == "matching":
        return Matching(), (size, size)
    if name == "choice":
        return Choice(), (size,)
    if not 1 <= k < size:
        raise UserError(f"--k is {k}; expected 1 to {size - 1}, fewer than --size")
    return Subset(k), (size,)


def draw_instance(name: str, size: int, k: int, seed: int) -> tuple[Structure, Tensor, Tensor]:
    """A structure, normal scores (*E), and the share of a target's ones that a structure misses as the cost."""
    structure, entries = make_structure(name, size, k)
    try:
        structure.check_count(torch.zeros(()).expand(entries), MOST_STRUCTURES)
    except ValueError as error:
        raise UserError(f"--size is {size}: {error}") from None
    scores = torch.randn(entries, generator=torch.Generator().manual_seed(seed))
    target = structure.enumerate(scores)[0]
    return structure, scores, costs.hamming(target) / (2 * target.sum())


def run(options: Options, store: Path, output: Path, as_json: bool) -> None:
    """The whole command. A finished audit is read from the store."""
    structure, scores, cost = draw_instance(options.structure, options.size, options.k, options.seed)
    scales, epsilons = _numbers("--scales", options.scales), _numbers("--epsilons", options.epsilons)
    if not scales or min(scales) < 0:
        raise UserError(f"--scales has {options.scales!r}; expected numbers >= 0 with commas, e.g. .5,1")
    if 0 in epsilons:
        raise UserError("--epsilons has 0; expected numbers other than 0")
    samples = _numbers("--samples", options.samples)
    if not samples or any(count < 1 or count != int(count) for count in samples):
        raise UserError(f"--samples has {options.samples!r}; expected whole numbers from 1 with commas, e.g. 1,5")
    if options.repetitions < 2:
        raise UserError(f"--repetitions is {options.repetitions}; expected at least 2")
    saved = open_store(store, output)
    if not saved.finished("audit", asdict(options)):
        with _progress() as on_progress:
            found = audit(
                direct_loss,
                scores,
                cost,
                structure,
                scale=scales,
                epsilons=epsilons or None,
                samples=[int(count) for count in samples],
                repetitions=options.repetitions,
                generator=torch.Generator().manual_seed(options.seed),
                on_progress=on_progress,
            )
        saved.add("audit", asdict(options), [(0, _result(found))])
    row = next(saved.rows("audit", config_hash("audit", asdict(options))))
    write_atomically(output / "audit.csv", to_csv(row["rows"]))
    figures.save(draw(row["rows"]), output / "audit")
    if as_json:
        print(json.dumps(row["rows"]))
        return
    _show(row)
    print(f"Wrote {output / 'audit.csv'}, .svg and .png; saved in {store}")


def _result(found: Audit) -> dict[str, Any]:
    rows = [
        {
            "target": row.target,
            "scale": row.scale,
            "rule": row.rule,
            **row.settings,
            **{
                name: getattr(row, name)
                for name in ("bias", "bias_error", "deviation", "cosine", "signal", "zero", "seconds")
            },
        }
        for row in found.rows
    ]
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
    return {"rows": rows, "slopes": slopes, "exact": exact, "best": best}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def draw(rows: Sequence[dict[str, Any]]) -> "Figure":
    """A row of panels for each gradient; colour is the rule, the line's style the scale and the number of samples."""
    targets = ("scores", "scale")
    figure, axes = figures.panels(len(PANELS), len(targets))
    kinds = sorted({(row["scale"], row["samples"]) for row in rows})
    styles = dict(zip(kinds, cycle(("-", "--", ":", "-.")), strict=False))
    for index, axis in enumerate(axes):
        target, (name, label) = targets[index // len(PANELS)], PANELS[index % len(PANELS)]
        for rule, color in zip(RULES, figures.COLORS, strict=False):
            for (scale, samples), style in styles.items():
                points = sorted(
                    (abs(row["epsilon"]), row[name] or (math.nan if name == "bias" else 0.0), row["bias_error"])
                    for row in rows
                    if (row["target"], row["rule"], row["scale"], row["samples"]) == (target, rule, scale, samples)
                )
                if not points:
                    continue
                x, y, error = zip(*points, strict=True)
                text = f"{rule}, σ = {scale:g}" + (f", {samples} samples" if samples > 1 else "")
                axis.plot(x, y, style, color=color, marker=".", label=text)
                if name == "bias":
                    axis.plot(x, error, style, color=color, alpha=0.3, linewidth=1)
        shown = any(row[name] > 0 for row in rows if row["target"] == target)
        figures.use_log(axis, "x", *["y"] * (shown and name in ("bias", "deviation")))
        axis.set_xlabel("|ε|")
        axis.set_title(f"{label}\n(gradient to the {target})", fontsize=10)
    axes[len(PANELS) - 1].legend(fontsize=8, frameon=False)
    return figure


def _show(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 130)
    table = Table(title=f"direct_loss on a {row['structure']} of size {row['size']}: gradients against the exact ones")
    for name in ("gradient to", "σ", "rule", "ε", "samples", "bias", "± error", "std", "cosine", "zero %", "µs/call"):
        table.add_column(name, justify="left" if name in ("gradient to", "rule") else "right")
    for line in row["rows"]:
        table.add_row(
            line["target"],
            f"{line['scale']:g}",
            line["rule"],
            f"{line['epsilon']:.3g}",
            str(line["samples"]),
            f"{line['bias']:.4f}",
            f"{line['bias_error']:.4f}",
            f"{line['deviation']:.3f}",
            f"{line['cosine']:.3f}",
            f"{100 * line['zero']:.1f}",
            f"{1e6 * line['seconds']:.2f}",
        )
    console.print(table)
    for one in row["exact"]:
        console.print(
            f"exact at σ = {one['scale']:g}: loss {one['loss']:.4f} ± {one['loss_error']:.4f}, "
            f"gradient of length {one['gradient']:.4f} ± {one['gradient_error']:.4f}"
        )
    for slope in row["slopes"]:
        if slope["slope"] is not None:
            console.print(
                f"bias to the {slope['target']}, σ = {slope['scale']:g}, {slope['rule']}: "
                f"order {slope['slope']:.2f} ± {slope['error']:.2f} in ε"
            )
    for best in row["best"]:
        console.print(
            f"most signal for its cost at σ = {best['scale']:g}: {best['rule']}, ε = {best['epsilon']:.3g}, "
            f"{best['samples']} sample{'s' * (best['samples'] > 1)}"
        )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar over the settings of the grid, on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("audit", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"{option} has {text!r}; expected numbers with commas, e.g. .5,1,2") from None
    if not all(abs(number) <= _LARGEST for number in numbers):
        raise UserError(f"{option} has {text!r}; expected numbers of magnitude at most {_LARGEST:g}")
    return numbers
