"""Draw the pictures of docs/gallery.md: run each section's example, and show what its gradient is made of.

    python tools/gallery [FOLDER]

An example calls ``dl.direct_loss`` once. Its scores, noise, cost, both maximisers and gradient are the panels.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drawings
import graphs
import torch
from svg import Panel, picture
from torch import Tensor

import directloss as dl
from directloss.losses.direct import evaluate_direct

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## (.+?)\n.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

DRAWINGS: dict[str, Callable[[Any, Any], Any]] = {
    "Choice": drawings.Bars,
    "Bits": drawings.Bars,
    "Subset": drawings.Bars,
    "Matching": drawings.Pairs,
    "Ranking": drawings.Order,
    "Interleaving": drawings.Order,
    "GridPath": drawings.Cells,
    "GridPath over edges": graphs.grid_edges,
    "Path": graphs.layers,
    "Knapsack": drawings.Packed,
    "SpanningTree": graphs.ring,
    "Arborescence": graphs.Heads,
    "Chain": graphs.Lattice,
    "Program": graphs.Plane,
    "Finite": graphs.Plane,
    "Pool": graphs.Plane,
    "custom": drawings.Bars,
}


class Seen(dl.Gumbel):
    """Noise that remembers what it drew."""

    def sample(self, *arguments: Any, **options: Any) -> Tensor:
        drawn = super().sample(*arguments, **options)
        object.__setattr__(self, "drawn", drawn)
        return drawn


def scaled(values: Any, *others: Tensor) -> Any:
    """Numbers from -1 to 1, each part by its largest; a first part that shares its scale with others by theirs too."""
    if isinstance(values, tuple):
        return tuple(scaled(value, *(others if index == 0 else ())) for index, value in enumerate(values))
    return values / max(1e-9, *(float(each.abs().max()) for each in (values, *others)))


def panels(draw: Callable[[Any, Any], Any], block: str, names: dict[str, Any]) -> Iterator[Panel]:
    """Run the example, and draw what its one call of ``direct_loss`` saw and returned."""
    calls: list[Any] = []

    def direct_loss(scores: Any, cost: Any, structure: Any, *, scale: float, **options: Any) -> Tensor:
        noise = Seen()
        found = evaluate_direct(scores, cost, structure, scale=scale, noise=noise, **options)
        calls.append((scores, cost, structure, scale, noise.drawn, found.vertices[0], options["epsilon"]))
        return found.loss

    original, dl.direct_loss = dl.direct_loss, direct_loss
    try:
        exec(compile(block, "docs/gallery.md", "exec"), names)
    finally:
        dl.direct_loss = original
    ((scores, cost, structure, scale, drawn, vertices, epsilon),) = calls
    parts = scores if isinstance(scores, tuple) else (scores,)
    first, factors = parts[0].detach(), tuple(part.detach() for part in parts[1:])
    y, ahead = vertices.dense(first.dtype).squeeze(1)
    gradient = parts[0].grad
    torch.testing.assert_close(gradient, (ahead - y) / epsilon)
    theta = first + scale * drawn[0]
    linear = isinstance(cost, Tensor)
    augmented = theta + epsilon * cost if linear else theta
    form = draw(structure, scores if isinstance(scores, tuple) else first)

    def with_factors(values: Tensor) -> Any:
        return (values, *factors) if factors else values

    yield (panel := Panel("scores μ"))
    form.values(panel, scaled(with_factors(first), theta))
    yield (panel := Panel("noisy θ = μ + σγ"))  # noqa: RUF001
    form.values(panel, scaled(with_factors(theta), first))
    yield (panel := Panel("cost c" if linear else "relevant"))
    form.values(panel, scaled(cost) if linear else structure.positive.to(first))
    yield (panel := Panel("y, best for θ"))
    form.decision(panel, y, scaled(with_factors(theta)))
    yield (panel := Panel("y(ε), for θ + εc" if linear else "y(ε), with the loss"))
    form.decision(panel, ahead, scaled(with_factors(augmented)))
    yield (panel := Panel("gradient"))
    grads = tuple(part.grad for part in parts)
    form.gradient(panel, scaled(grads if factors else gradient))


def pictures() -> dict[str, str]:
    """The file of each section's picture, and what is in it."""
    page = (ROOT / "docs/gallery.md").read_text()
    start = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert start
    names: dict[str, Any] = {}
    exec(start[1], names)
    found = {}
    for title, block in SECTION.findall(page):
        file = title.lower().replace(" ", "-") + ".svg"
        found[file] = picture(
            f"{title}: scores, noise, cost, two maximisers, gradient", list(panels(DRAWINGS[title], block, names))
        )
    return found


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/figures/gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pictures().items():
        (folder / file).write_text(text)
        print(f"{folder / file}: {len(text.encode()) / 1000:.1f} kB")


if __name__ == "__main__":
    main()
