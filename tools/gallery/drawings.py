"""How each structure is drawn: the numbers that its entries have, a decision over them, and a gradient.

Values come scaled to -1 to 1. A drawing is made for one call: ``values`` draws numbers of any entries, ``decision`` a y
over the scores that it maximises, ``gradient`` the gradient.
"""

from collections.abc import Sequence
from itertools import pairwise
from string import ascii_lowercase as letters
from typing import Any

from svg import CHOSEN, HEIGHT, INK, WIDTH, Panel, shade
from torch import Tensor

FAINT = 0.35
Point = tuple[float, float]


class Bars:
    """A bar for each entry, up or down; the chosen ones are green."""

    def __init__(self, structure: Any, scores: Tensor):
        self.widths = [1.0] * scores.shape[-1]

    def columns(self) -> list[tuple[float, float]]:
        """Where each bar begins, and how wide it is."""
        unit = WIDTH / sum(self.widths)
        edges = [unit * sum(self.widths[:i]) for i in range(len(self.widths) + 1)]
        return [(left + 1.5, right - left - 3) for left, right in pairwise(edges)]

    def bars(self, panel: Panel, values: Tensor, shades: Sequence[tuple[str, float]]) -> None:
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        unit = (HEIGHT - 16) / max(high - low, 1.0)
        zero = 2 + unit * high
        panel.line([(0, zero), (WIDTH, zero)], INK, 0.7)
        for (x, width), value, shade_, letter in zip(self.columns(), values.tolist(), shades, letters, strict=False):
            panel.box(x, zero - unit * max(value, 0), width, unit * abs(value), *shade_)
            panel.text(x + width / 2, HEIGHT, letter)

    def values(self, panel: Panel, values: Tensor) -> None:
        self.bars(panel, values, [(shade(value)[0], 0.85) for value in values.tolist()])

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.values(panel, gradient)

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        self.bars(panel, values, [(CHOSEN, 1.0) if one else (INK, FAINT) for one in y.tolist()])


class Order(Bars):
    """Items in the order in which a decision puts them, the relevant ones of an interleaving green."""

    def __init__(self, structure: Any, scores: Tensor):
        super().__init__(structure, scores)
        relevant = getattr(structure, "positive", None)
        self.relevant = [False] * len(scores) if relevant is None else relevant.tolist()

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        order = self.interleaved(y, values) if any(self.relevant) else y.argsort(descending=True).tolist()
        height, middle = HEIGHT / len(order), WIDTH / 2
        for place, item in enumerate(order):
            green = self.relevant[item]
            panel.text(middle - 32, (place + 0.75) * height, f"{place + 1}")
            panel.box(middle - 22, place * height + 1, 44, height - 2, *((CHOSEN, 1.0) if green else (INK, 0.18)))
            panel.text(middle, (place + 0.75) * height, letters[item], "#fff" if green else INK)

    def interleaved(self, y: Tensor, values: Tensor) -> list[int]:
        """It says how many irrelevant items stand before a relevant one; items of one kind go by score."""
        irrelevant, relevant = self.relevant.count(False), self.relevant.count(True)
        before = (irrelevant * (1 - relevant * y) / 2).round().tolist()
        others = [item for item in values.argsort(descending=True).tolist() if not self.relevant[item]]
        place = {item: index + 0.5 for index, item in enumerate(others)}
        return sorted(range(len(y)), key=lambda item: (place.get(item, before[item]), -float(values[item])))


class Packed(Bars):
    """Items as wide as they weigh; a decision lays the chosen ones side by side, within the capacity."""

    def __init__(self, structure: Any, scores: Tensor):
        self.widths = structure.weights.double().tolist()
        self.capacity = float(structure.capacity)

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        unit, height = WIDTH / self.capacity, 30.0
        top, x = (HEIGHT - height) / 2, 0.0
        for weight, letter, one in zip(self.widths, letters, y.tolist(), strict=False):
            if one:
                panel.box(x + 1, top + 1, unit * weight - 2, height - 2, CHOSEN, 0.9)
                panel.text(x + unit * weight / 2, top + 19, letter, "#fff")
                panel.text(x + unit * weight / 2, top + height + 13, f"{weight:g}")
                x += unit * weight
        panel.frame(0, top - 1, WIDTH, height + 2)
        panel.text(WIDTH / 2, top - 8, f"at most {self.capacity:g}")


class Cells:
    """A square for each entry of a matrix."""

    def __init__(self, structure: Any, scores: Tensor):
        self.rows, self.columns = scores.shape
        self.left = 0.0

    @property
    def side(self) -> float:
        return min((WIDTH - self.left) / self.columns, HEIGHT / self.rows)

    def centre(self, row: int, column: int) -> Point:
        left = self.left + (WIDTH - self.left - self.side * self.columns) / 2
        return left + (column + 0.5) * self.side, (row + 0.5) * self.side

    def squares(self, panel: Panel, values: Tensor, most: float = 0.95) -> None:
        for row, entries in enumerate(values.tolist()):
            for column, value in enumerate(entries):
                (x, y), (color, opacity) = self.centre(row, column), shade(value)
                side = self.side - 1.5
                panel.box(x - side / 2, y - side / 2, side, side, INK, 0.12)
                panel.box(x - side / 2, y - side / 2, side, side, color, most * opacity)

    def values(self, panel: Panel, values: Tensor) -> None:
        self.squares(panel, values)

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.values(panel, gradient)

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        """A path: it visits its cells in the order of their diagonals."""
        self.squares(panel, values, 0.55)
        visited = sorted(y.nonzero().tolist(), key=sum)
        panel.line([self.centre(*cell) for cell in visited], CHOSEN, 5)


class Pairs(Cells):
    """A matrix of numbers; a decision links each row to its column."""

    def links(self, panel: Panel, numbers: Tensor) -> None:
        for row, column in numbers.nonzero().tolist():
            ends = [(30.0, self.level(row, self.rows)), (WIDTH - 30, self.level(column, self.columns))]
            value = float(numbers[row, column])
            panel.line(ends, *((CHOSEN, 3.0) if self.chosen else (shade(value)[0], 1.5 + 2.5 * abs(value))))
        for count, x, names in ((self.rows, 30.0, letters), (self.columns, WIDTH - 30, "123456789")):
            for index in range(count):
                panel.dot(x, self.level(index, count), 4, INK)
                panel.text(x + (-12 if x < 50 else 12), self.level(index, count) + 3.5, names[index])

    def level(self, index: int, count: int) -> float:
        return (index + 0.5) * HEIGHT / count

    def values(self, panel: Panel, values: Tensor) -> None:
        self.left = 8.0
        self.squares(panel, values)
        for row in range(self.rows):
            panel.text(self.centre(row, 0)[0] - self.side / 2 - 7, self.centre(row, 0)[1] + 3.5, letters[row])

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        self.chosen = True
        self.links(panel, y)

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.chosen = False
        self.links(panel, gradient)
