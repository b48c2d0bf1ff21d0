"""From rows to the paper's tables: means, intervals, and ours beside theirs."""

import math
import os
import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NAMES = {"direct0": "direct, σ = 0", "direct1": "direct, σ = 1", "dsl": "DSL", "gumbel-sinkhorn": "Gumbel-Sinkhorn"}
# Table 1: perfectly sorted test sequences, share of misplaced entries with its standard deviation; all in percent.
TABLE_1: dict[str, dict[int, tuple[float, float, float]]] = {
    "direct0": {
        5: (98.5, 0.6, 4.9),
        10: (97.0, 0.6, 3.4),
        25: (89.5, 0.9, 2.8),
        40: (84.5, 1.2, 4.5),
        60: (82.0, 0.9, 2.6),
        100: (74.9, 1.4, 6.9),
    },
    "direct1": {
        5: (100.0, 0.0, 0.0),
        10: (100.0, 0.0, 0.0),
        25: (97.5, 0.3, 1.7),
        40: (90.5, 0.6, 2.2),
        60: (80.0, 0.9, 2.2),
        100: (68.5, 1.2, 2.4),
    },
    "dsl": {
        5: (100.0, 0.0, 0.0),
        10: (100.0, 0.0, 0.0),
        25: (97.5, 0.3, 1.6),
        40: (91.6, 0.5, 1.6),
        60: (83.3, 0.7, 1.8),
        100: (76.8, 0.9, 2.1),
    },
    "gumbel-sinkhorn": {
        5: (100.0, 0.0, 0.0),
        10: (100.0, 0.0, 0.0),
        25: (87.5, 1.0, 3.0),
        40: (83.5, 1.0, 5.0),
        60: (21.0, 5.0, 9.0),
        100: (0.0, 11.3, 11.2),
    },
}
# Table 2: seconds for each epoch, on one K80.
TABLE_2: dict[str, dict[int, float]] = {
    "dsl": {10: 0.247, 40: 0.252, 100: 0.304},
    "gumbel-sinkhorn": {10: 0.288, 40: 0.294, 100: 0.306},
}

# Table 3: test accuracy in percent, for k = 1, 3, 5, 9.
_K = (1, 3, 5, 9)
TABLE_3: dict[str, dict[str, dict[int, float]]] = {
    "mnist": {
        "direct0": dict(zip(_K, (99.1, 99.2, 99.3, 99.2), strict=True)),
        "direct1": dict(zip(_K, (16.0, 53.84, 14.25, 41.53), strict=True)),
        "dsl": dict(zip(_K, (99.34, 99.4, 99.4, 99.34), strict=True)),
        "neuralsort": dict(zip(_K, (99.2, 99.5, 99.3, 99.3), strict=True)),
        "neuralsort-stochastic": dict(zip(_K, (99.1, 99.3, 99.4, 99.4), strict=True)),
        "relaxsubsample": {5: 99.3},
    },
    "fashion-mnist": {
        "direct0": dict(zip(_K, (89.8, 93.2, 93.5, 93.7), strict=True)),
        "direct1": dict(zip(_K, (92.5, 93.4, 93.3, 93.2), strict=True)),
        "dsl": dict(zip(_K, (92.6, 93.3, 94.0, 93.7), strict=True)),
        "neuralsort": dict(zip(_K, (92.6, 93.2, 93.5, 93.0), strict=True)),
        "neuralsort-stochastic": dict(zip(_K, (92.2, 93.1, 93.3, 93.4), strict=True)),
        "relaxsubsample": {5: 93.6},
    },
    "cifar-10": {
        "direct0": dict(zip(_K, (24.9, 27.0, 39.6, 39.9), strict=True)),
        "direct1": dict(zip(_K, (23.1, 89.95, 90.85, 91.6), strict=True)),
        "dsl": dict(zip(_K, (29.6, 90.7, 91.25, 91.7), strict=True)),
        "neuralsort": dict(zip(_K, (88.7, 90.0, 90.2, 90.7), strict=True)),
        "neuralsort-stochastic": dict(zip(_K, (85.1, 87.8, 88.0, 89.5), strict=True)),
        "relaxsubsample": {5: 90.1},
    },
}
# Table 4: seconds for each epoch at k = 3, on one K80; an epoch is another number of queries for each.
TABLE_4: dict[str, dict[str, float]] = {
    "mnist": {"dsl": 28.3, "neuralsort-stochastic": 14.4},
    "fashion-mnist": {"dsl": 198.6, "neuralsort-stochastic": 328.6},
    "cifar-10": {"dsl": 220.0, "neuralsort-stochastic": 337.6},
}


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share."""
    z = 1.959964
    share = successes / trials
    center = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def summarize_sorting(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each method, size and recipe. Shares are in percent."""
    cells: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["recipe"], row["method"], row["size"]].append(row)
    lines = []
    for (recipe, method, size), cell in cells.items():
        count = len(cell)
        wrong = [100 * row["wrong"] for row in cell]
        mean = sum(wrong) / count
        variance = sum((value - mean) ** 2 for value in wrong) / max(count - 1, 1)
        epochs = sum(row["epochs"] for row in cell)
        lines.append(
            {
                "method": method,
                "size": size,
                "recipe": recipe,
                "repetitions": count,
                "perfect": 100 * sum(row["perfect"] for row in cell) / count,
                "wrong_mean": mean,
                "wrong_std": math.sqrt(variance),
                "kendall_tau": sum(row["kendall_tau"] for row in cell) / count,
                "epochs_mean": epochs / count,
                "seconds_per_epoch": sum(row["seconds"] for row in cell) / epochs,
            }
        )
    order = list(TABLE_1)
    return sorted(lines, key=lambda line: (line["recipe"], order.index(line["method"]), line["size"]))


def sorting_cells(lines: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The summary as text, ours beside the paper's."""
    header = [
        "method",
        "d",
        "n",
        "perfect %",
        "95 % interval",
        "paper",
        "misplaced %",
        "paper",
        "tau",
        "epochs",
        "ms/epoch",
    ]
    body = []
    for line in lines:
        low, high = wilson(round(line["perfect"] * line["repetitions"] / 100), line["repetitions"])
        theirs = TABLE_1.get(line["method"], {}).get(line["size"])
        body.append(
            [
                line["method"],
                str(line["size"]),
                str(line["repetitions"]),
                f"{line['perfect']:.1f}",
                f"{100 * low:.1f} - {100 * high:.1f}",
                f"{theirs[0]:g}" if theirs else "-",
                f"{line['wrong_mean']:.2f} ± {line['wrong_std']:.1f}",
                f"{theirs[1]:g} ± {theirs[2]:g}" if theirs else "-",
                f"{line['kendall_tau']:.4f}",
                f"{line['epochs_mean']:.0f}",
                f"{1e3 * line['seconds_per_epoch']:.2f}",
            ]
        )
    return header, body


def markdown(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *body)]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The machine in a few words, without its name."""
    model = platform.processor() or platform.machine()
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
