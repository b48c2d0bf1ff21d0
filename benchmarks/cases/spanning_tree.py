"""Spanning trees of complete graphs against SciPy, which gets each instance as a matrix."""

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree

import directloss as dl


def cases(batch: int = 64) -> list[dict]:
    found = []
    for n, target in ((20, 50.0), (100, 20.0)):
        scores = torch.randn(batch, n * (n - 1) // 2, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        # SciPy minimises, and an entry of 0 is no edge.
        lengths = np.zeros((batch, n, n))
        upper = np.triu_indices(n, 1)
        lengths[:, *upper] = scores.max().item() + 1 - scores.numpy()
        structure = dl.SpanningTree()

        def theirs(lengths=lengths):
            return [minimum_spanning_tree(one) for one in lengths]

        def check(y, trees, scores=scores, upper=upper):
            ours = (y * scores).sum(-1)
            best = [scores[i].numpy()[tree.toarray()[upper] > 0].sum() for i, tree in enumerate(trees)]
            np.testing.assert_allclose(ours.numpy(), best, rtol=1e-12)

        found.append(
            {
                "work": f"SpanningTree, complete, n = {n}, batch {batch}",
                "against": "scipy.sparse.csgraph.minimum_spanning_tree",
                "target": target,
                "ours": lambda structure=structure, scores=scores: structure.solve(scores),
                "theirs": theirs,
                "check": check,
            }
        )
    return found
