"""The index arithmetic of ``parts`` on the CPU: one pass each, instead of five to ten small tensor operations."""

from directloss.compiling import kernel


@kernel
def add_difference(positions, ahead, behind, out):
    """Add one at the positions ``positions[ahead]`` (S, B, K) and subtract one at those ``behind``: ``out`` (B, E)."""
    _, samples, instances, count = positions.shape
    for sample in range(samples):
        for b in range(instances):
            for k in range(count):
                out[b, positions[ahead, sample, b, k]] += 1
                out[b, positions[behind, sample, b, k]] -= 1


@kernel
def weigh(positions, values, weights, out):
    """``<weights, y>`` into ``out[0]`` and ``<|weights|, |y|>`` into ``out[1]``, each (N,).

    ``positions`` and ``values`` are (N, K), one of them perhaps without rows: every entry in order, or ones. ``weights``
    (R, E) repeat along the instances.
    """
    rows, entries = weights.shape
    everywhere, ones = len(positions) == 0, len(values) == 0
    count = values.shape[1] if everywhere else positions.shape[1]
    for i in range(out.shape[1]):
        row = weights[i % rows]
        total, size = 0.0, 0.0
        for k in range(count):
            term = row[k if everywhere else positions[i, k]]
            if not ones:
                term *= values[i, k]
            total += term
            size += abs(term)
        out[0, i] = total
        out[1, i] = size
