"""Where a maximiser's answers beat each other most: the kernel behind its certificate."""

from directloss.compiling import kernel


@kernel
def worst_shortfall(plain, along, steps, tolerance):
    """The step and the instance whose answer falls shortest of another's, or (-1, -1) if none does by much.

    ``plain`` and ``along`` (2, T, N) hold what the answer of each step is worth under the scores and under the cost,
    and the sums of the magnitudes; the tolerance is relative to those.
    """
    _, count, instances = plain.shape
    reach = 0.0
    for step in steps:
        reach = max(reach, abs(step))
    worst, where = 0.0, (-1, -1)
    for i in range(instances):
        size = 0.0
        for t in range(count):
            size = max(size, plain[1, t, i] + reach * along[1, t, i])
        for s in range(count):
            own = plain[0, s, i] + steps[s] * along[0, s, i]
            for t in range(count):
                short = plain[0, t, i] + steps[s] * along[0, t, i] - own - tolerance * size
                if short > worst or short != short:  # not a number: the sums overflowed
                    worst, where = short, (s, i)
    return where
