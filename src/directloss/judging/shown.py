"""An audit as text, as CSV and as a figure."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directloss.judging.drawing import NUMBERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown:
    """What has a structure's name and rows of measurements, and shows them."""

    structure: str
    rows: list[Any]

    def records(self) -> list[dict[str, Any]]:
        """A flat dict for each setting and gradient, without its mean."""
        return [
            {"target": row.target, "scale": row.scale, "rule": row.rule, **row.settings}
            | {name: getattr(row, name) for name in NUMBERS}
            for row in self.rows
        ]

    def to_csv(self, path: str | Path | None = None) -> str:
        """The records as CSV, also written to a file if one is named."""
        records = self.records()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(name for one in records for name in one)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def plot(self) -> "Figure":
        """Bias, deviation, cosine and zero gradients over epsilon, as a matplotlib figure; ``savefig`` saves it."""
        from directloss.judging.drawing import draw

        return draw(self.records())

    def __repr__(self) -> str:
        lines = [f"Audit of gradients on {self.structure}"]
        header = f"{'gradient to':<12}{'σ':>6}  {'rule':<11}{'ε':>8}{'bias':>10}{'± error':>9}"
        lines.append(header + f"{'std':>8}{'cosine':>8}{'zero':>7}")
        shown = ("epsilon", "sides", "samples")
        for row in self.rows:
            further = "".join(f"  {name}={value}" for name, value in row.settings.items() if name not in shown)
            epsilon = f"{row.settings['epsilon']:.3g}" if "epsilon" in row.settings else "-"
            lines.append(
                f"{row.target:<12}{row.scale:>6g}  {row.rule:<11}{epsilon:>8}{row.bias:>10.4f}{row.bias_error:>9.4f}"
                f"{row.deviation:>8.3f}{row.cosine:>8.3f}{row.zero:>7.1%}{further}"
            )
        return "\n".join(lines)
