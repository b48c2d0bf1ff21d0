"""Dependency trees against networkx and ufal.chu_liu_edmonds."""

import networkx as nx
import numpy as np
import torch
from ufal.chu_liu_edmonds import chu_liu_edmonds

import directloss as dl


def by_networkx(matrices: np.ndarray) -> list[list[int]]:
    """Graph building included; matrix[i, j] scores head j for word i, as in ufal's library."""
    found = []
    for matrix in matrices:
        graph = nx.DiGraph()
        graph.add_weighted_edges_from(
            (head, word, matrix[word, head])
            for word in range(1, len(matrix))
            for head in range(len(matrix))
            if head != word
        )
        tree = nx.maximum_spanning_arborescence(graph)
        heads = {word: head for head, word in tree.edges}
        found.append([heads[word] for word in range(1, len(matrix))])
    return found


def by_ufal(matrices: np.ndarray) -> list[list[int]]:
    return [chu_liu_edmonds(matrix)[0][1:] for matrix in matrices]


def cases(batch: int = 64) -> list[dict]:
    found = []
    for n in (20, 50):
        scores = torch.randn(batch, n, n + 1, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        matrices = np.full((batch, n + 1, n + 1), np.nan)
        matrices[:, 1:] = scores.numpy()
        matrices[:, range(n + 1), range(n + 1)] = np.nan

        for against, theirs, target, size in (
            ("networkx, graph building included", by_networkx, 200.0, 4),
            ("ufal.chu_liu_edmonds", by_ufal, 3.0, batch),
        ):

            def solve(scores=scores, size=size):
                # networkx takes seconds for a whole batch, so both get a few instances.
                return dl.Arborescence().solve(scores[:size])

            def check(y, heads, scores=scores, size=size):
                ours = (y * scores[:size]).sum((1, 2))
                best = scores[:size].gather(2, torch.tensor(heads).unsqueeze(-1)).sum((1, 2))
                torch.testing.assert_close(ours, best, rtol=1e-12, atol=1e-12)

            found.append(
                {
                    "work": f"Arborescence, n = {n}, batch {size}",
                    "against": against,
                    "target": target,
                    "ours": solve,
                    "theirs": lambda theirs=theirs, matrices=matrices, size=size: theirs(matrices[:size]),
                    "check": check,
                }
            )
    return found
