"""The largest magnitude among numbers: the kernel behind the check of scores and costs."""

import numpy as np

from directloss.compiling import kernel, part


@part(fastmath={"nnan", "nsz"})  # lets LLVM turn the loop into vector instructions
def _largest(numbers):
    largest = numbers.dtype.type(0)
    for number in numbers:
        size = abs(number)
        largest = size if size > largest else largest
    return largest


@part()
def _all_finite(numbers):
    bad = 0
    for i in range(len(numbers)):
        bad += numbers[i] - numbers[i] != 0  # of infinity it is not a number
    return bad == 0


@kernel
def magnitude(numbers):
    """The largest magnitude, or NaN if a number is not finite."""
    return _largest(numbers) if _all_finite(numbers) else np.nan
