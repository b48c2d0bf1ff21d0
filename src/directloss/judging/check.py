"""Is my solver right? What a structure promises, tried on scores of the user's own."""

import torch
from torch import Tensor

from directloss.parts import Scores, as_parts
from directloss.structures.base import MOST_STRUCTURES, Structure, check_structure_type
from directloss.structures.certificate import WrongMaximizerError

_STEPS = (0.0, 1.0, -1.0, 100.0)
_MOST_ENUMERATED = 20_000


def check_structure(structure: Structure, scores: Scores, *, generator: torch.Generator | None = None) -> None:
    """Raise ``ValueError`` if a structure's maximiser breaks a promise on these scores (B..., *E), or on ties of them.

    Tried are: answers against each other along random costs, a batch against its instances alone, repeated calls,
    rounded scores that tie, scores that must not be changed, and, for one instance with few enough structures, all of
    them.

    Example:
        >>> import torch, directloss as dl
        >>> dl.check_structure(dl.Subset(2), torch.randn(4, 5))
        >>> wrong = dl.custom(lambda s: torch.nn.functional.one_hot(s.argmin(-1), s.shape[-1]))
        >>> try:
        ...     dl.check_structure(wrong, torch.randn(4, 5))
        ... except ValueError as error:
        ...     print("seems to minimise" in str(error))
        True
    """
    check_structure_type(structure)
    parts = structure.expanded(as_parts(scores))
    parts = tuple(part.detach() for part in parts)
    batch = structure.batch_shape(parts)
    first = parts[0]
    cost = torch.randn(first.shape, generator=generator, dtype=first.dtype, device=first.device)
    largest = first.abs().max() if first.numel() else first.new_ones(())
    tied = (first / largest.clamp_min(torch.finfo(first.dtype).tiny) * 2).round()
    for what, tried in (("", parts), (" (scores rounded, so that they tie)", (tied, *parts[1:]))):
        before = tuple(part.clone() for part in tried)
        y = _solve(structure, tried)
        if not all(torch.equal(*pair) for pair in zip(before, tried, strict=True)):
            raise ValueError(f"{structure!r} changed its scores{what}; let it work on a copy")
        if not torch.equal(y, _solve(structure, tried)):
            raise ValueError(
                f"{structure!r} answered the same scores differently{what}; a maximiser must be repeatable"
            )
        along = structure.vertices_along(tried, cost * largest, _STEPS)
        if not structure.nonpositive:
            _beats(structure, tried, y, along[0].select(0).dense(first.dtype), what)
        if batch and first.numel():
            _check_alone(structure, tried, y, len(batch), what)
        if not batch:
            _check_enumerated(structure, tried, y, what)


def _solve(structure: Structure, parts: tuple[Tensor, ...]) -> Tensor:
    return structure.solve(parts if len(parts) > 1 else parts[0])


def _beats(structure: Structure, parts: tuple[Tensor, ...], y: Tensor, other: Tensor, what: str) -> None:
    """Raise unless y is as good as another structure, up to rounding."""
    value, rival = (_value(structure, parts, one) for one in (y, other))
    short = rival - value
    slack = 1e-5 * (_size(structure, parts, y) + _size(structure, parts, other))
    if (short > slack).any():
        where = tuple(int(i) for i in torch.unravel_index((short - slack).argmax(), short.shape)) if short.dim() else ()
        raise WrongMaximizerError(
            f"{structure!r} did not maximise{what}: instance {where} has {value[where].item():.6g}, and "
            f"{rival[where].item():.6g} is possible"
        )


def _value(structure: Structure, parts: tuple[Tensor, ...], y: Tensor) -> Tensor:
    found = structure.complete(y, parts)
    return torch.stack([v.inner(part.double()) for v, part in zip(found, parts, strict=True)]).sum(0)


def _size(structure: Structure, parts: tuple[Tensor, ...], y: Tensor) -> Tensor:
    return _value(structure, tuple(part.abs() for part in parts), y).abs()


def _check_alone(structure: Structure, parts: tuple[Tensor, ...], y: Tensor, batch_dims: int, what: str) -> None:
    """Raise unless the first and last instance alone get an answer as good as in the batch."""
    if structure.tensors() or len(parts) > 1:
        return  # data and factors belong to their batch
    flat, answers = (tensor.flatten(0, batch_dims - 1) for tensor in (parts[0], y))
    for index in {0, len(flat) - 1}:
        alone = structure.solve(flat[index])
        _beats(structure, (flat[index],), answers[index], alone, f", in a batch{what}")
        _beats(structure, (flat[index],), alone, answers[index], f", alone{what}")


def _check_enumerated(structure: Structure, parts: tuple[Tensor, ...], y: Tensor, what: str) -> None:
    try:
        count = structure.count(parts)
    except ValueError:
        return  # it cannot be enumerated
    if count > min(_MOST_ENUMERATED, MOST_STRUCTURES):
        return
    every = structure.enumerate(parts)
    if not (every == y).flatten(1).all(1).any():
        raise ValueError(f"{structure!r} returned a structure that is none of its {count} enumerated ones{what}")
    values = sum(v.inner(part.double()) for v, part in zip(structure.enumerated(parts), parts, strict=True))
    assert isinstance(values, Tensor)
    best = every[values.argmax()]
    _beats(structure, parts, y, best, what)
