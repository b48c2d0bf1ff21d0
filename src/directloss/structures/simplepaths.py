"""All simple paths over a small grid, for enumeration."""

import numpy as np

from directloss.structures.base import MOST_STRUCTURES

# Where a path is takes the last six bits of a whole number, and the cells that it has visited one bit each.
_PLACE = 6
_MOST_CELLS = 63 - _PLACE


def simple_paths(rows: int, columns: int, neighbours: int) -> np.ndarray:
    """The sets of cells that paths from the first to the last cell can visit, none twice: (N, rows, columns).

    Different paths with the same cells are one structure. Raise ValueError if there are too many to make.
    """
    cells = rows * columns
    if cells > _MOST_CELLS:
        raise ValueError(
            f"paths with {neighbours} neighbours are enumerated and counted on at most {_MOST_CELLS} cells, but the "
            f"grid has {rows} x {columns}; take a smaller one"
        )
    finished = [np.array([1])] if cells == 1 else []
    states = np.array([1 << _PLACE] if cells > 1 else [], np.int64)
    moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i or j) and (neighbours == 8 or not (i and j))]
    while len(states):
        visited, place = states >> _PLACE, states % (1 << _PLACE)
        grown = []
        for down, right in moves:
            i, j = place // columns + down, place % columns + right
            inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
            cell = np.where(inside, i * columns + j, 0)
            free = inside & (visited >> cell & 1 == 0)
            grown.append((visited | 1 << cell)[free] << _PLACE | cell[free])
        states = _distinct(np.concatenate(grown))
        arrived = states % (1 << _PLACE) == cells - 1
        finished.append(states[arrived] >> _PLACE)
        states = states[~arrived]
        if len(states) > MOST_STRUCTURES:
            raise ValueError(
                f"a grid of {rows} x {columns} cells has too many paths with {neighbours} neighbours to enumerate or "
                "count; take a smaller one"
            )
    masks = _distinct(np.concatenate(finished))
    return (masks[:, None] >> np.arange(cells) & 1).reshape(-1, rows, columns)


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Sorted, each once; many times faster than np.unique, which hashes."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers
