"""The interleaving that is best for its scores and its average precision together (Song et al. 2016), O(P N).

Average precision depends only on the pattern of relevant and irrelevant items, and for each pattern the scores are best
served when both kinds come in descending order. So what is left is a path through a grid: in state (i, j) the best i
relevant and j irrelevant items are placed, and the next item is one of either kind. Relevant item i (from 0) after j
irrelevant ones adds

    score (N - 2 j) / (P N)     to <scores, y>      and      (i + 1) / (i + 1 + j) / P     to the average precision,

and irrelevant item j after i relevant ones adds score (P - 2 i) / (P N) to the former. Nothing here depends on the
sign of epsilon.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def interleave(scores, positive, epsilon, before, first, last):
    """Write how many of the other kind stand before each item where ``<scores, y> + epsilon * (1 - AP)`` is largest.

    Items of instances first to last - 1 come in descending order of their scores, (instances, n). Ties place the
    relevant item first.
    """
    n = scores.shape[1]
    relevant, irrelevant = np.empty(n, np.int64), np.empty(n, np.int64)
    best = np.empty(n + 1)
    came_by_relevant = np.empty((n + 1) * (n + 1), np.bool_)
    for instance in range(first, last):
        p = q = 0
        for item in range(n):
            if positive[instance, item]:
                relevant[p] = item
                p += 1
            else:
                irrelevant[q] = item
                q += 1
        if p == 0 or q == 0:
            before[instance] = 0
            continue
        pairs, width = float(p * q), q + 1
        for i in range(p + 1):
            for j in range(width):
                by_relevant = by_irrelevant = -np.inf
                if i:
                    gain = scores[instance, relevant[i - 1]] * (q - 2 * j) / pairs
                    by_relevant = best[j] + (gain - epsilon[instance] / p * (i / (i + j)))
                if j:
                    by_irrelevant = best[j - 1] + scores[instance, irrelevant[j - 1]] * (p - 2 * i) / pairs
                # Of tied paths the one that ends with an irrelevant item has the relevant one first.
                came_by_relevant[i * width + j] = by_relevant > by_irrelevant
                if i or j:
                    best[j] = max(by_relevant, by_irrelevant)
                else:
                    best[j] = 0.0
        i, j = p, q
        while i or j:
            if came_by_relevant[i * width + j]:
                i -= 1
                before[instance, relevant[i]] = j
            else:
                j -= 1
                before[instance, irrelevant[j]] = i
    return -1
