"""SparseMAP (Niculae et al. 2018): the point of the convex hull of all structures that is closest to the scores.

    y = argmax <theta, y> - |y|^2 / 2    over conv(Y),

a convex combination of few structures. In parts, the norm is that of the first part alone, Niculae's regulariser:
factors enter linearly. The solution is found without gradients, as its active set: the structures that it combines.
On that set it solves a linear system,

    y = sum_i p_i y_i,      <y_i, y> + tau = <theta, y_i> for all i,      sum_i p_i = 1,

whose derivative is the exact one: to the first part, the projection of the gradient onto the set's affine hull. For one
of n this is sparsemax (Martins & Astudillo 2016), for k of n the projection onto the capped simplex, for square
matchings that onto doubly stochastic matrices; these have faster methods, in ``projections``.
"""

import torch
from torch import Tensor

from directloss.layers.active_set import ActiveSet
from directloss.layers.projections import capped_simplex, doubly_stochastic
from directloss.losses.solving import Tensors, batched
from directloss.parts import Scores, Vertices, as_parts
from directloss.structures.base import Structure, check_structure_type
from directloss.structures.checks import largest_magnitude
from directloss.structures.choice import Choice
from directloss.structures.matching import Matching
from directloss.structures.subset import Subset
from directloss.transforms import inside_transform


def sparsemap(scores: Scores, structure: Structure) -> Tensor:
    """The closest point of the convex hull to the scores, (B..., *E). Differentiable, twice. Takes every structure.

    Each structure that joins the active set is one solve of the whole batch, except for ``Choice``, ``Subset`` and
    square ``Matching``. There is no constant: the shorter the scores, the more structures mix; ``scores / temperature``
    sets it.

    Args:
        scores: (B..., *E), or a tuple of parts; each gets a gradient.
        structure: what is relaxed.

    Example:
        >>> import torch, directloss as dl
        >>> dl.sparsemap(torch.tensor([0.0, 1.5, 1.0]), dl.Choice())
        tensor([0.0000, 0.7500, 0.2500])
    """
    check_structure_type(structure)
    parts = structure.expanded(as_parts(scores))
    entries, batch = structure.fit(parts)
    first = parts[0]
    if not inside_transform():
        for part in parts:
            largest_magnitude(part, "scores")  # for its checks
    if isinstance(structure, Choice | Subset) and first.numel():
        return capped_simplex(first.double(), structure).to(first.dtype)
    structure = structure.for_batch(len(batch))
    if not first.numel():
        return first.clone()
    wide = tuple(part.double() for part in parts)
    if isinstance(structure, Matching) and structure.forbidden is None and entries[0][0] == entries[0][1]:
        return doubly_stochastic(wide[0]).to(first.dtype)
    return _combined(wide, structure, entries).to(first.dtype)


def _combined(parts: Tensors, structure: Structure, entries: tuple[torch.Size, ...]) -> Tensor:
    search = ActiveSet()
    active, *tensors = batched(search, structure, entries, parts)
    vertices = search.layout.unpack(tensors)
    # (B..., A, E), by sum_to because dense writes in place, which vmap does not like
    y = vertices[0].sum_to((*active.shape, *entries[0]), torch.float64).flatten(active.dim())
    values = torch.stack(
        [_inner(v, part, len(own)) for v, part, own in zip(vertices, parts, entries, strict=True)]
    ).sum(0)
    both = active.unsqueeze(-1) & active.unsqueeze(-2)
    gram = torch.where(both, y @ y.mT + 1, torch.eye(active.shape[-1], dtype=y.dtype, device=y.device))
    right = torch.stack([torch.where(active, values, 0.0), active.to(y.dtype)], -1)
    weights, ones = torch.linalg.solve(gram, right).unbind(-1)
    weights = weights + ones * (1 - weights.sum(-1, keepdim=True)) / ones.sum(-1, keepdim=True)
    closest: Tensor = weights.unsqueeze(-2) @ y
    return closest.reshape(parts[0].shape)


def _inner(vertices: Vertices, part: Tensor, own: int) -> Tensor:
    """``<part, y_i>`` of the structures (B..., A), part being (B..., *E) or of fewer axes."""
    return vertices.inner(part.unsqueeze(-own - 1) if part.dim() > own else part)
