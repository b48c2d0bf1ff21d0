"""The table of structures that every generic test runs over. A new structure is one more row."""

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
        return self.structure.enumerate(self.entries)

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


MASK = torch.tensor([[False, True, False], [False, False, False], [False, False, True]])

STRUCTURES = [
    Row("choice", dl.Choice(), (4,)),
    Row("subset", dl.Subset(2), (5,)),
    Row("matching-3x3", dl.Matching(), (3, 3)),
    Row("matching-4x4", dl.Matching(), (4, 4)),
    Row("matching-2x4", dl.Matching(), (2, 4)),
    Row("matching-4x2", dl.Matching(), (4, 2)),
    Row("matching-masked", dl.Matching(forbidden=MASK), (3, 3)),
    Row("custom", dl.custom(one_hot_argmax, structures=lambda entries: torch.eye(entries[0])), (4,)),
    Row("custom-unbatched", dl.custom(heaviest_row, 2, batched=False, structures=every_row), (3, 2)),
    Row("custom-any-size", dl.custom(positive_entries, structures=every_set), (4,)),
]

every_structure = pytest.mark.parametrize("row", STRUCTURES, ids=lambda row: row.name)


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
