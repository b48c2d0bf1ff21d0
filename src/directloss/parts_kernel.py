"""The difference of two sets of ones on the CPU, in one pass instead of six small tensor operations."""

from directloss.compiling import kernel


@kernel
def add_difference(ahead, behind, out):
    """Add one at the positions ``ahead`` (S, B, K) and subtract one at those ``behind``: ``out`` (B, E)."""
    samples, instances, count = ahead.shape
    for sample in range(samples):
        for b in range(instances):
            for k in range(count):
                out[b, ahead[sample, b, k]] += 1
                out[b, behind[sample, b, k]] -= 1
