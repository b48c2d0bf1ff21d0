"""Structures that are drawn as graphs: edges between nodes, heads of words, labels of positions; and as points."""

import math
from typing import Any

import torch
from drawings import Cells, Point
from svg import CHOSEN, DIRECTION, HEIGHT, INK, WIDTH, Panel, shade
from torch import Tensor

INSET = 8.0


class Edges:
    """Nodes with a line for each edge, thick where its number is large; a decision's edges are green."""

    def __init__(self, edges: list[tuple[int, int]], nodes: list[Point]):
        self.edges, self.nodes = edges, nodes

    def lines(self, panel: Panel, values: Tensor, fade: float = 1.0) -> None:
        for (a, b), value in zip(self.edges, values.tolist(), strict=True):
            color, strength = shade(value)
            ends = [self.nodes[a], self.nodes[b]]
            panel.line(ends, INK, 0.6, 0.5)
            panel.line(ends, color, 1 + 4 * strength, fade * (0.25 + 0.75 * strength) if value else 0)

    def dots(self, panel: Panel) -> None:
        for node in self.nodes:
            panel.dot(*node, 3.5, INK)

    def values(self, panel: Panel, values: Tensor) -> None:
        self.lines(panel, values)
        self.dots(panel)

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.values(panel, gradient)

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        self.lines(panel, values, 0.45)
        for (a, b), one in zip(self.edges, y.tolist(), strict=True):
            panel.line([self.nodes[a], self.nodes[b]], CHOSEN, 5, 1.0 if one else 0.0)
        self.dots(panel)


def grid_edges(structure: Any, scores: Tensor) -> Edges:
    rows, columns = structure.shape
    step = (HEIGHT - 2 * INSET) / (rows - 1)
    left = (WIDTH - step * (columns - 1)) / 2
    nodes = [(left + step * j, INSET + step * i) for i in range(rows) for j in range(columns)]
    edges = []
    for i in range(rows):
        row = range(i * columns, (i + 1) * columns)
        edges += [(cell, cell + 1) for cell in row[:-1]]
        edges += [(cell, cell + columns) for cell in row if i < rows - 1]
    return Edges(edges, nodes)


def layers(structure: Any, scores: Tensor) -> Edges:
    """An acyclic graph, each node in the column of its longest way from the source."""
    edges = [(int(a), int(b)) for a, b in structure.edges]
    count = 1 + max(max(edge) for edge in edges)
    depth = [0] * count
    for _ in range(count):
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    columns = [[node for node in range(count) if depth[node] == at] for at in range(max(depth) + 1)]
    across = (WIDTH - 2 * INSET) / (len(columns) - 1)
    places = {
        node: (INSET + at * across, (index + 0.5) * HEIGHT / len(column))
        for at, column in enumerate(columns)
        for index, node in enumerate(column)
    }
    return Edges(edges, [places[node] for node in range(count)])


def ring(structure: Any, scores: Tensor) -> Edges:
    """A complete graph, its nodes on a circle."""
    count = round((1 + math.sqrt(1 + 8 * len(scores))) / 2)
    radius = HEIGHT / 2 - 4
    angles = [2 * math.pi * i / count - math.pi / 2 for i in range(count)]
    nodes = [(WIDTH / 2 + radius * math.cos(angle), HEIGHT / 2 + 4 + radius * math.sin(angle)) for angle in angles]
    return Edges([(a, b) for a in range(count) for b in range(a + 1, count)], nodes)


class Heads(Cells):
    """A matrix of numbers, the root's column first; a decision's arcs lead from head to word."""

    def __init__(self, structure: Any, scores: Tensor):
        super().__init__(structure, scores)
        self.left = 10.0

    def values(self, panel: Panel, values: Tensor) -> None:
        self.squares(panel, values)
        for row in range(self.rows):
            x, y = self.centre(row, 0)
            panel.text(x - self.side / 2 - 7, y + 3.5, str(row + 1))

    def arcs(self, panel: Panel, numbers: Tensor, chosen: bool) -> None:
        ground = HEIGHT - 16
        at = [8 + (WIDTH - 16) * i / (self.columns - 1) for i in range(self.columns)]
        for row, head in numbers.nonzero().tolist():
            value = float(numbers[row, head])
            color, thick = (CHOSEN, 2.5) if chosen else (shade(value)[0], 1 + 2 * abs(value))
            a, b = at[head], at[row + 1]
            b += -3 if a < b else 3  # the tips of two arcs into a word stay apart
            rise = 14 + 0.72 * abs(b - a)
            top = ground - rise
            panel.curve(
                f"M{a:.1f} {ground - 4:.1f}C{a:.1f} {top:.1f} {b:.1f} {top:.1f} {b:.1f} {ground - 8:.1f}", color, thick
            )
            tip = f"{b:.1f},{ground - 3:.1f} {b - 4:.1f},{ground - 10:.1f} {b + 4:.1f},{ground - 10:.1f}"
            panel.mark("polygon", points=tip, fill=color)
        for index, x in enumerate(at):
            panel.dot(x, ground, 3, INK)
            panel.text(x, HEIGHT, str(index) if index else "root")

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        self.arcs(panel, y, True)

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.arcs(panel, gradient, False)


class Lattice:
    """A column of labels for each position, transitions between neighbours; a decision is a path through them."""

    def __init__(self, structure: Any, scores: tuple[Tensor, ...]):
        self.count, self.labels = scores[0].shape

    def at(self, position: int, label: int) -> Point:
        return 10 + (WIDTH - 20) * position / (self.count - 1), (label + 0.5) * HEIGHT / self.labels

    def values(self, panel: Panel, values: tuple[Tensor, ...] | Tensor, fade: float = 1.0) -> None:
        unary, *transitions = values if isinstance(values, tuple) else (values,)
        for position in range(self.count - 1):
            for a, row in enumerate(transitions[0].tolist() if transitions else ()):
                for b, value in enumerate(row):
                    color, strength = shade(value)
                    ends = [self.at(position, a), self.at(position + 1, b)]
                    panel.line(ends, color, 2.2 * strength, 0.75 * fade * strength)
        for position, row in enumerate(unary.tolist()):
            for label, value in enumerate(row):
                x, y = self.at(position, label)
                color, strength = shade(value)
                panel.dot(x, y, 2.5, INK)
                if abs(value) > 0.02:
                    panel.mark("circle", cx=x, cy=y, r=2 + 7 * strength, fill=color, fill_opacity=f"{0.85 * fade:.2f}")

    def gradient(self, panel: Panel, gradient: tuple[Tensor, ...]) -> None:
        self.values(panel, gradient)

    def decision(self, panel: Panel, y: Tensor, values: tuple[Tensor, ...]) -> None:
        self.values(panel, values[0] if isinstance(values, tuple) else values, 0.4)
        panel.line([self.at(i, label) for i, label in enumerate(y.argmax(-1).tolist())], CHOSEN, 4)


class Plane:
    """Structures of two entries are points, and scores are a direction: the farthest point that way is the best."""

    def __init__(self, structure: Any, scores: Tensor):
        known = getattr(structure, "solutions", None)
        inside = structure if known is None else structure.structure
        self.points = inside.enumerate(torch.zeros(2)).tolist()
        self.known = self.points if known is None else known.tolist()
        most = max(max(point) for point in self.points)
        self.unit = (HEIGHT - 32) / most
        self.left = (WIDTH - self.unit * most) / 2

    def at(self, point: list[float]) -> Point:
        return self.left + self.unit * point[0], HEIGHT - 12 - self.unit * point[1]

    def dots(self, panel: Panel) -> None:
        left, bottom = self.left - 7, HEIGHT - 5
        panel.line([(left, 14), (left, bottom), (WIDTH - left, bottom)], INK, 0.7)
        panel.text(left - 7, 20, "b")
        panel.text(WIDTH - left + 7, bottom + 3, "a")
        for point in self.points:
            panel.dot(*self.at(point), 2.2, *((INK,) if point in self.known else ("none", INK)))

    def values(self, panel: Panel, values: Tensor) -> None:
        self.dots(panel)
        x, y = (44 * value for value in values.tolist())
        panel.arrow((WIDTH / 2 - x / 2, HEIGHT / 2 + y / 2), (WIDTH / 2 + x / 2, HEIGHT / 2 - y / 2), DIRECTION)

    def gradient(self, panel: Panel, gradient: Tensor) -> None:
        self.values(panel, gradient)

    def decision(self, panel: Panel, y: Tensor, values: Tensor) -> None:
        """With the line on which all is as good, and the direction in which it gets better."""
        self.dots(panel)
        a, b = self.at(y.tolist())
        right, up = (values / values.norm()).tolist()
        panel.line([(a - 20 * up, b - 20 * right), (a + 20 * up, b + 20 * right)], CHOSEN, 1.2, dashes="4 3")
        panel.arrow((a, b), (a + 18 * right, b - 18 * up), DIRECTION)
        panel.dot(a, b, 4.5, CHOSEN)
