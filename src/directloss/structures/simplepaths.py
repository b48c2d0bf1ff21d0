"""All simple paths over a small grid, for enumeration."""

import numpy as np

from directloss.structures.base import MOST_STRUCTURES

# A set of visited cells is one whole number, a bit for each cell.
_MOST_CELLS = 62


def simple_paths(rows: int, columns: int, neighbours: int) -> np.ndarray:
    """The sets of cells that paths from the first to the last cell can visit, none twice: (N, rows, columns).

    Different paths with the same cells are one structure. Raise ValueError if there are too many to make.
    """
    cells = rows * columns
    if cells > _MOST_CELLS:
        raise ValueError(
            f"paths with {neighbours} neighbours are enumerated and counted on at most {_MOST_CELLS} cells, but the grid "
            f"has {rows} x {columns}; take a smaller one"
        )
    finished = [np.array([1])] if cells == 1 else []
    visited, at = np.array([1]), np.array([0])
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i or j) and (neighbours == 8 or not (i and j))]
    while len(visited) and cells > 1:
        grown = []
        for down, right in steps:
            i, j = at // columns + down, at % columns + right
            inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
            bit = np.left_shift(1, np.where(inside, i * columns + j, 0))
            free = inside & (visited & bit == 0)
            grown.append(np.stack([visited[free] | bit[free], (i * columns + j)[free]], 1))
        states = np.unique(np.concatenate(grown), axis=0)
        arrived = states[:, 1] == cells - 1
        finished.append(states[arrived, 0])
        visited, at = states[~arrived].T
        if len(visited) > MOST_STRUCTURES:
            raise ValueError(
                f"a grid of {rows} x {columns} cells has too many paths with {neighbours} neighbours to enumerate or "
                "count; take a smaller one"
            )
    masks = np.unique(np.concatenate(finished))
    return (masks[:, None] >> np.arange(cells) & 1).reshape(-1, rows, columns)
