"""The table of structures that every generic test runs over. A new structure is one more row."""

import functools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import directloss as dl


@dataclass(frozen=True)
class Row:
    name: str
    structure: dl.Structure
    entries: tuple[int, ...]

    @property
    def every(self) -> Tensor:
        """All structures, (N, *E)."""
        return self.structure.enumerate(torch.zeros(self.entries, dtype=torch.float64))

    def scores(self, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(*batch, *self.entries, generator=torch.Generator().manual_seed(seed)).to(dtype)


def one_hot_argmax(scores: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])


def heaviest_row(scores: Tensor) -> Tensor:
    """All of the row with the largest sum: structures whose entries are not a vector."""
    y = torch.zeros_like(scores)
    y[scores.sum(-1).argmax()] = 1
    return y


def positive_entries(scores: Tensor) -> Tensor:
    """Any entries, also none: structures whose number of ones differs."""
    return scores > 0


def every_set(entries: tuple[int, ...]) -> Tensor:
    return torch.cartesian_prod(*[torch.tensor([0, 1])] * entries[0])


def every_row(entries: tuple[int, ...]) -> Tensor:
    return torch.eye(entries[0]).unsqueeze(-1).expand(-1, -1, entries[1])


REALS = torch.tensor([[0, 0, 0], [2, -1, 0], [0, 3, 1], [1.5, 0, -2], [-1, -1, 4], [2, 3, 0.25]], dtype=torch.float64)


def best_of_reals(scores: Tensor) -> Tensor:
    """The best of vertices that are not 0/1."""
    return REALS[(scores.double() @ REALS.mT).argmax(-1)]


def cheapest(scores: Tensor) -> Tensor:
    """A minimiser."""
    return torch.nn.functional.one_hot(scores.argmin(-1), scores.shape[-1])


def positive_allowed(scores: Tensor, allowed: Tensor) -> Tensor:
    """The entries with a positive score that an instance's data allow."""
    return ((scores > 0) & allowed).to(scores.dtype)


MASK = torch.tensor([[False, True, False], [False, False, False], [False, False, True]])

STRUCTURES = [
    Row("choice", dl.Choice(), (4,)),
    Row("choice-masked", dl.Choice(mask=torch.tensor([True, False, True, True])), (4,)),
    Row("bits", dl.Bits(), (4,)),
    Row("bits-masked", dl.Bits(mask=torch.tensor([True, False, True, True])), (4,)),
    Row("subset", dl.Subset(2), (5,)),
    Row("subset-masked", dl.Subset(2, mask=torch.tensor([True, False, True, True, True])), (5,)),
    Row("matching-3x3", dl.Matching(), (3, 3)),
    Row("matching-4x4", dl.Matching(), (4, 4)),
    Row("matching-2x4", dl.Matching(), (2, 4)),
    Row("matching-4x2", dl.Matching(), (4, 2)),
    Row("matching-masked", dl.Matching(forbidden=MASK), (3, 3)),
    Row("custom", dl.custom(one_hot_argmax, structures=lambda entries: torch.eye(entries[0])), (4,)),
    Row("custom-unbatched", dl.custom(heaviest_row, 2, batched=False, structures=every_row), (3, 2)),
    Row("custom-reals", dl.custom(best_of_reals, structures=REALS), (3,)),
    Row("custom-minimize", dl.custom(cheapest, minimize=True, structures=torch.eye(4)), (4,)),
    Row("custom-any-size", dl.custom(positive_entries, structures=every_set), (4,)),
]

# One value for each instance, so that instances can be told apart.
direct_loss = functools.partial(dl.direct_loss, reduction="none")

every_structure = pytest.mark.parametrize("row", STRUCTURES, ids=lambda row: row.name)


zero_one_structures = pytest.mark.parametrize(
    "row", [row for row in STRUCTURES if row.name != "custom-reals"], ids=lambda row: row.name
)


def named(*names: str) -> pytest.MarkDecorator:
    """Only these rows, where the fact under test needs their symmetry or closed form."""
    rows = [row for row in STRUCTURES if row.name in names]
    assert len(rows) == len(names)
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


def objective(scores: Tensor, y: Tensor, entry_dims: int) -> Tensor:
    """``<scores, y>`` in float64."""
    return (scores.double() * y.double()).sum(tuple(range(-entry_dims, 0)))


def best_objective(scores: Tensor, every: Tensor) -> Tensor:
    """The largest ``<scores, y>`` over the enumerated structures."""
    batch = scores.shape[: scores.dim() - every.dim() + 1]
    return (scores.double().reshape(*batch, 1, -1) * every.to(scores.device).flatten(1)).sum(-1).amax(-1)


def index_in(y: Tensor, every: Tensor) -> Tensor:
    """Which of the enumerated structures each y is; fails where one is none of them."""
    batch = y.shape[: y.dim() - every.dim() + 1]
    same = (y.reshape(*batch, 1, -1).double() == every.to(y.device).flatten(1)).all(-1)
    assert same.any(-1).all(), "a returned tensor is not a structure"
    return same.double().argmax(-1)
