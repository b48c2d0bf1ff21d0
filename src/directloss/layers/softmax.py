"""Marginals of the Gibbs distribution: the softmax of every structure whose partition function is known.

    softmax(scores) = sum_y y exp(<scores, y> / t) / Z(scores / t) = d log Z / d scores   at scores / t.

On ``Choice`` it is the softmax, on ``Bits`` the sigmoid, on ``Chain`` the forward-backward algorithm, and on trees the
matrix-tree theorem. Of perturbed scores it is Gumbel-softmax (Jang et al. 2017, Maddison et al. 2017), and one of the
stochastic softmax tricks of Paulus et al. 2020.
"""

from typing import Literal, overload

import torch
from torch import Tensor

from directloss.layers.checks import over_temperature
from directloss.parts import Scores, as_parts
from directloss.structures.base import Structure, check_structure_type
from directloss.structures.partition import check_summable
from directloss.transforms import inside_transform


@overload
def softmax(
    scores: Scores, structure: Structure, temperature: float = 1.0, parts: Literal[False] = False
) -> Tensor: ...


@overload
def softmax(
    scores: Scores, structure: Structure, temperature: float = 1.0, *, parts: Literal[True]
) -> tuple[Tensor, ...]: ...


def softmax(
    scores: Scores, structure: Structure, temperature: float = 1.0, parts: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """The mean structure under ``p(y) ~ exp(<scores, y> / temperature)``, shaped like the scores. Differentiable.

    Takes structures with a partition function: ``Choice``, ``Bits``, ``Subset``, ``Chain``, ``SpanningTree``,
    ``Arborescence`` and ``Finite``.

    Args:
        scores: (B..., *E), or a tuple of parts. With Gumbel noise, by ``dl.perturb``, this is Gumbel-softmax.
        structure: whose mean is taken.
        temperature: towards 0 the result approaches the best structure, upwards the mean of all.
        parts: also return the means of the other parts, such as a chain's pairs of labels, (B..., *E) each.

    Example:
        >>> import torch, directloss as dl
        >>> dl.softmax(torch.tensor([2.0, 0.0, 0.0]), dl.SpanningTree())  # each edge's share among the three trees
        tensor([0.9366, 0.5317, 0.5317])
    """
    check_structure_type(structure)
    check_summable("softmax", structure)
    given = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(given)
    if parts:  # a factor that is shared would get a sum over those who share it
        given = tuple(part.expand(*batch, *own) for part, own in zip(given, entries, strict=True))
    scaled = tuple(over_temperature(part, temperature) for part in given)
    means = _marginals(structure, scaled, len(given) if parts else 1)
    return means if parts else means[0]


def _marginals(structure: Structure, scores: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """The gradient of the partition function in the first ``count`` parts of the scores."""

    def total(*inputs: Tensor) -> Tensor:
        return structure.log_partition((*inputs, *scores[count:])).sum()

    if inside_transform():
        found: tuple[Tensor, ...] = torch.func.grad(total, tuple(range(count)))(*scores[:count])
        return found
    learns = torch.is_grad_enabled() and any(part.requires_grad for part in scores)
    with torch.enable_grad():
        inputs = [part if part.requires_grad else part.detach().requires_grad_() for part in scores[:count]]
        return torch.autograd.grad(total(*inputs), inputs, create_graph=learns, materialize_grads=True)
