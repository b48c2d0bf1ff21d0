"""A label for each position of a sequence."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices
from directloss.structures.arrays import as_array, place, shared_rows
from directloss.structures.base import Structure
from directloss.structures.checks import check_mask
from directloss.structures.partition import never, only
from directloss.transforms import inside_transform

_PARTS = ("unary", "transitions", "start", "end")
# Below this much work (instances x steps x n x L^2) handing a part to another thread costs more than it gains.
_LEAST_WORK = 200_000


class Chain(Structure):
    """A label for each of n positions, neighbours scored together: tagging, segmenting, reading. ``*E`` is (n, L).

    Scores are the unary scores (B..., n, L) alone, or a tuple (unary, transitions), (unary, transitions, start) or
    (unary, transitions, start, end). ``transitions[a, b]`` scores label a followed by label b: (L, L) for all, one for
    each pair of neighbours (n - 1, L, L), or one for each instance, (B..., 1, L, L) or (B..., n - 1, L, L). ``start``
    and ``end`` score the first and the last label: (L,) or (B..., L). Noise and costs live on the unary scores.

    Args:
        lengths: whole numbers from 0 to n, broadcasting to the batch (B...); positions beyond are 0 in y.
        forbidden: boolean, True where a label may not follow another; (L, L), or broadcasting to (B..., n - 1, L, L).
        mask: boolean, True where a label may be used; broadcasts to the unary scores (B..., n, L). Its first row says
            which labels may begin.

    Example:
        >>> import torch, directloss as dl
        >>> unary = torch.tensor([[2.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> stay = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> dl.Chain().solve((unary, stay))
        tensor([[1., 0.],
                [1., 0.],
                [1., 0.]])
    """

    entry_dims = 2
    data: ClassVar[Mapping[str, int]] = {"lengths": 0, "forbidden": 3, "mask": 2}
    proven = True
    summable = True

    def __init__(
        self, lengths: Tensor | int | None = None, forbidden: Tensor | None = None, mask: Tensor | None = None
    ):
        self.lengths = None if lengths is None else _whole(lengths)
        if forbidden is not None:
            check_mask("forbidden", forbidden, 2, "a label may not follow another")
            if forbidden.dim() == 2:
                forbidden = forbidden.unsqueeze(0)
        if mask is not None:
            check_mask("mask", mask, 1, "a label may be used")
            if mask.dim() == 1:
                mask = mask.unsqueeze(0)
        self.forbidden, self.mask = forbidden, mask
        self._validate_values()

    def _validate(self) -> None:
        if self.lengths is not None and (self.lengths < 0).any():
            where = tuple((self.lengths < 0).nonzero()[0].tolist())
            raise ValueError(f"lengths has {int(self.lengths[where])} for instance {where}, expected at least 0")

    def _check_entries(self, entries: torch.Size) -> None:
        n, labels = entries
        if n and not labels:
            raise ValueError("scores have no labels to choose from; expected (n, L) with L >= 1 on the last axes")
        for name, mask, wanted in (
            ("forbidden", self.forbidden, (n - 1, labels, labels)),
            ("mask", self.mask, entries),
        ):
            if mask is None:
                continue
            own = tuple(mask.shape[mask.dim() - len(wanted) :])
            if own[1:] != tuple(wanted[1:]) or own[0] not in (1, wanted[0]):
                raise ValueError(
                    f"{name} has shape {tuple(mask.shape)}, but scores of {n} positions and {labels} labels need "
                    f"(..., {wanted[0]} or 1, {', '.join(str(size) for size in wanted[1:])})"
                )

    def _part_entries(self, parts: tuple[Tensor, ...]) -> tuple[torch.Size, ...]:
        if len(parts) > len(_PARTS):
            raise ValueError(
                f"scores have {len(parts)} parts, but Chain takes at most {len(_PARTS)}: {', '.join(_PARTS)}"
            )
        first = self._last_axes(parts[0])
        self._check_entries(first)
        n, labels = first
        entries = [first, *map(torch.Size, ((max(0, n - 1), labels, labels), (labels,), (labels,)))][: len(parts)]
        for name, part, own in zip(_PARTS[1:], parts[1:], entries[1:], strict=False):
            exact = own[1:] if name == "transitions" else own  # transitions may be shared by all positions
            shared = part.dim() < len(own) or part.shape[-len(own)] in (1, own[0])
            if part.shape[max(0, part.dim() - len(exact)) :] != exact or not shared:
                hint = f", or ({labels}, {labels}) for all" if name == "transitions" else ""
                raise ValueError(
                    f"{name} have shape {tuple(part.shape)}, but unary scores {tuple(parts[0].shape)} of {n} positions "
                    f"and {labels} labels need (..., {', '.join(map(str, own))}){hint}"
                )
        return tuple(entries)

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        from directloss.structures.kernels.viterbi import viterbi

        unary = parts[0]
        *batch, n, labels = unary.shape
        self._check_lengths(n)
        array = as_array(unary).reshape(-1, n, labels)
        along = cost.expand(*cost.shape[:-2], n, labels) if cost.dim() > 1 else cost.expand(n, labels)
        factors: list[np.ndarray] = []
        for part, own in zip((along, *_padded(parts[1:], 3)), (2, 3, 1, 1), strict=True):
            factors += _rows(part, batch, own, array.dtype)
        data: list[np.ndarray] = []
        for tensor, own in ((self.lengths, 0), (self.forbidden, 3), (self.mask, 2)):
            data += _rows(tensor, batch, own, np.dtype(np.int64 if own == 0 else np.bool_))
        found = np.empty((len(steps), len(array), n), np.int64)
        at = np.asarray(steps, np.float64)

        def work(first: int, last: int) -> int:
            return int(viterbi(array, *factors[:2], at, *factors[2:], *data, found, first, last))

        size = len(steps) * n * labels**2
        infeasible = max(threads.split(work, len(array), least=_LEAST_WORK // size))
        if infeasible >= 0:
            raise ValueError(_without_labels(place(infeasible, batch)))
        sequences = torch.from_numpy(found).reshape(len(steps), *batch, n).to(unary.device)
        return self._vertices(sequences, self._part_entries(parts), unary.dtype)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        """The forward algorithm: the sum over all sequences that end in each label, position by position."""
        unary = parts[0]
        transitions, start, end = _padded(parts[1:], 3)
        n, labels = unary.shape[-2:]
        if not inside_transform():
            self._check_lengths(n)
        unary = only(unary, self.mask)
        pairs = unary.new_zeros(1, labels, labels) if transitions is None else transitions
        if pairs.dim() == 2:
            pairs = pairs.unsqueeze(0)
        pairs = only(pairs, None if self.forbidden is None else ~self.forbidden)
        lengths = None if self.lengths is None else self.lengths.to(unary.device).unsqueeze(-1)
        ending = unary[..., 0, :] if start is None else unary[..., 0, :] + start
        for t in range(1, n):
            pair = pairs[..., t - 1 if pairs.shape[-3] > 1 else 0, :, :]
            longer = torch.logsumexp(ending.unsqueeze(-1) + pair, -2) + unary[..., t, :]
            ending = longer if lengths is None else torch.where(t < lengths, longer, ending)
        total = torch.logsumexp(ending if end is None else ending + end, -1)
        if lengths is not None:
            total = torch.where(lengths.squeeze(-1) > 0, total, 0.0)
        self._check_feasible(total)
        return total

    def _check_feasible(self, total: Tensor) -> None:
        """Raise ValueError if a sum over all sequences has none."""
        if not inside_transform() and (self.forbidden is not None or self.mask is not None):
            wrong = total.detach() < never(total.dtype) / 2
            if wrong.any():
                raise ValueError(_without_labels(tuple(wrong.nonzero()[0].tolist())))

    def _vertices(self, sequences: Tensor, entries: tuple[torch.Size, ...], dtype: torch.dtype) -> tuple[Vertices, ...]:
        """Label sequences (..., n), 0 beyond their lengths, as ones for each part."""
        n = entries[0][0]
        position = torch.arange(n, device=sequences.device)
        unary = Vertices.of_coordinates(entries[0], position, sequences)
        ends = sequences[..., -1:]
        kept: Tensor | None = None
        if self.lengths is not None:
            lengths = self.lengths.to(sequences.device).unsqueeze(-1).expand(*sequences.shape[:-1], 1)
            ends = sequences.gather(-1, (lengths - 1).clamp_min(0))
            kept = (position < lengths).to(dtype)
        found = [unary._replace(values=kept)]
        if len(entries) > 1:
            pairs = Vertices.of_coordinates(entries[1], position[:-1], sequences[..., :-1], sequences[..., 1:])
            found.append(pairs._replace(values=None if kept is None else kept[..., 1:]))
        for one, own in zip((sequences[..., :1], ends), entries[2:], strict=False):
            found.append(Vertices(own, one, None if kept is None else kept[..., :1]))
        return tuple(found)

    def _complete(self, target: Tensor, entries: tuple[torch.Size, ...]) -> tuple[Vertices, ...]:
        n = entries[0][0]
        if not target.numel():
            return tuple(Vertices.empty(target.shape[:-2], own, target.device) for own in entries)
        if not inside_transform():
            self._check_lengths(n)
            used = torch.ones(n, dtype=torch.bool, device=target.device)
            if self.lengths is not None:
                used = torch.arange(n, device=target.device) < self.lengths.to(target.device).unsqueeze(-1)
            right = ((target == 0) | (target == 1)).all(-1) & (target.sum(-1) == used)
            if not right.all():
                *where, position = (~right).nonzero()[0].tolist()
                raise ValueError(
                    f"target is not a label sequence at position {position} of instance {tuple(where)}: expected "
                    "exactly one 1 among the labels of each position up to the length, and zeros beyond"
                )
        return self._vertices(target.argmax(-1), entries, target.dtype)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        n, labels = parts[0].shape
        self._check_lengths(n)
        every = torch.arange(labels, device="cpu")
        sequences = torch.zeros(1, n, dtype=torch.int64, device="cpu")
        for t in range(self._length(n)):
            sequences = sequences.repeat_interleave(labels, 0)
            sequences[:, t] = every.repeat(len(sequences) // labels)
            allowed = self._label_mask(t, labels)[sequences[:, t]]
            if t:
                allowed = allowed & self._pair_mask(t - 1, labels)[sequences[:, t - 1], sequences[:, t]]
            sequences = sequences[allowed]
        return self._vertices(sequences.to(parts[0].device), self._part_entries(parts), parts[0].dtype)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        n, labels = parts[0].shape
        self._check_lengths(n)
        length = self._length(n)
        if not length:
            return 1
        # How many sequences end in each label, in Python's integers.
        ending = [int(one) for one in self._label_mask(0, labels)]
        for t in range(1, length):
            pairs, mask = self._pair_mask(t - 1, labels).tolist(), self._label_mask(t, labels).tolist()
            ending = [sum(ending[a] for a in range(labels) if pairs[a][b]) if mask[b] else 0 for b in range(labels)]
        return sum(ending)

    def _length(self, n: int) -> int:
        return n if self.lengths is None else int(self.lengths)

    def _pair_mask(self, position: int, labels: int) -> Tensor:
        """Which label may follow which, (L, L)."""
        if self.forbidden is None:
            return torch.ones(labels, labels, dtype=torch.bool, device="cpu")
        return ~self.forbidden[position if len(self.forbidden) > 1 else 0].cpu()

    def _label_mask(self, position: int, labels: int) -> Tensor:
        """Which labels may be used, (L,)."""
        if self.mask is None:
            return torch.ones(labels, dtype=torch.bool, device="cpu")
        return self.mask[position if len(self.mask) > 1 else 0].cpu()

    def _check_lengths(self, n: int) -> None:
        if self.lengths is not None and self.lengths.numel() and (self.lengths > n).any():
            where = tuple((self.lengths > n).nonzero()[0].tolist())
            raise ValueError(
                f"lengths has {int(self.lengths[where])} for instance {where}, beyond the {n} positions of the scores"
            )


def _without_labels(where: tuple[int, ...]) -> str:
    return f"forbidden transitions or the mask leave instance {where} without labels; allow more there"


def _whole(lengths: Tensor | int) -> Tensor:
    found = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(f"lengths is {found.dtype}, expected whole numbers, one for each instance")
    return found


def _padded(parts: tuple[Tensor, ...], count: int) -> tuple[Tensor | None, ...]:
    return (*parts, *[None] * (count - len(parts)))


def _rows(
    tensor: Tensor | None, batch: Sequence[int], own: int, dtype: "np.dtype[np.generic]"
) -> tuple[np.ndarray, np.ndarray]:
    """An array for the kernel and the row of each instance; both empty where there is no tensor."""
    if tensor is None:
        return np.empty((0,) * (own + 1), dtype), np.empty(0, np.int64)
    if tensor.dim() < own:
        tensor = tensor.reshape(*[1] * (own - tensor.dim()), *tensor.shape)
    array, rows = shared_rows(tensor, batch, own)
    return array.astype(dtype, copy=False), rows
