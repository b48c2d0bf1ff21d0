"""The negative logarithm of the target's likelihood under the Gibbs distribution (Lafferty et al. 2001).

    p(y) = exp(<scores, y>) / Z,   Z = sum_y exp(<scores, y>),   loss = log Z - <scores, target>,

whose gradient is the marginals, the mean structure under p, less the target. On ``Choice`` it is cross-entropy, on
``Bits`` its binary form, on ``Chain`` a conditional random field. It is the Fenchel-Young loss of the Gibbs entropy.
"""

from typing import Any

import torch
from torch import Tensor

from directloss.losses.reduction import Reduction, check_reduction, reduce
from directloss.parts import Scores, as_parts
from directloss.structures.base import Structure, check_structure_type
from directloss.structures.partition import check_summable


def likelihood(
    scores: Scores,
    target: Tensor,
    structure: Structure,
    *,
    reduction: Reduction = "mean",
    return_structure: bool = False,
) -> Any:
    """``log Z - <scores, target>``: exact, no solve, no noise. Takes structures with a partition function.

    These are ``Choice``, ``Bits``, ``Subset``, ``Chain``, ``SpanningTree``, ``Arborescence`` and ``Finite``.

    Args:
        scores: (B..., *E), or a tuple of parts; the gradient reaches every part.
        target: the right structures, their first part, broadcasting to (B..., *E). Or their expectation, where the
            scores are one tensor.
        structure: what is predicted.
        reduction: "mean" or "sum" over the instances, or "none": (B...).
        return_structure: also return the most likely structure, (B..., *E), at the price of a solve.

    Example:
        >>> import torch, directloss as dl
        >>> unary, transitions = torch.zeros(3, 2), torch.zeros(2, 2)
        >>> target = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> dl.likelihood((unary, transitions), target, dl.Chain())  # one of 8 sequences: log 8
        tensor(2.0794)
    """
    check_structure_type(structure)
    check_summable("likelihood", structure)
    check_reduction(reduction)
    parts = structure.expanded(as_parts(scores))
    # The difference of two large numbers that are close where the target is likely.
    wide = tuple(part.to(torch.float64) for part in parts)
    vertices = structure.complete(target, wide)
    value = structure.log_partition(wide)
    for vertex, part in zip(vertices, wide, strict=True):
        value = value - vertex.inner(part)
    loss = reduce(value.to(parts[0].dtype), reduction)
    return (loss, structure.solve(scores)) if return_structure else loss
