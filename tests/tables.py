"""The tables of structures that every generic test runs over. A new structure is one more row.

``STRUCTURES`` are scored by one tensor, ``PARTS`` by a tuple of them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
# Paths from 4 to 2 of one to three edges, parallel edges, and edges that lead nowhere.
EDGES = [[3, 2], [4, 3], [4, 2], [0, 3], [4, 0], [0, 2], [2, 1], [4, 3]]
# A triangle with a double edge, and a tail of two edges.
GRAPH = torch.tensor([[0, 1], [1, 2], [0, 2], [1, 0], [2, 3], [3, 4]])
# Whole numbers that are not 0/1.
PROGRAM = dl.Program(
    A_eq=torch.tensor([[1, 1, 1]]),
    b_eq=torch.tensor([2]),
    lower=torch.tensor([-1, 0, 0]),
    upper=torch.tensor([2, 2, 3]),
)

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
    Row("chain", dl.Chain(), (3, 2)),
    Row("chain-short", dl.Chain(lengths=torch.tensor(2)), (3, 2)),
    Row("chain-forbidden", dl.Chain(forbidden=torch.eye(3, dtype=torch.bool)), (3, 3)),
    Row("ranking", dl.Ranking(torch.tensor([3.0, -1.0, 0.0, 5.0])), (4,)),
    Row("ranking-tied", dl.Ranking(torch.tensor([0, 2, 1, 0])), (4,)),
    Row("ranking-mask", dl.Ranking(torch.tensor([3.0, -1, 0, 5]), torch.tensor([True, True, False, True])), (4,)),
    Row("finite", dl.Finite(torch.tensor([[0, 0, 0], [2, -1, 0], [0, 3, 1], [-1, -1, 4]])), (3,)),
    Row("finite-matrices", dl.Finite(torch.eye(6).reshape(6, 3, 2), entry_dims=2), (3, 2)),
    Row("interleaving", dl.Interleaving(torch.tensor([False, True, False])), (3,)),
    Row("pool", dl.Pool(dl.Subset(2)), (5,)),
    Row("gridpath-cells", dl.GridPath(), (3, 4)),
    Row("gridpath-edges", dl.GridPath(shape=(3, 3)), (12,)),
    Row("path", dl.Path(EDGES, 4, 2), (8,)),
    Row("path-graded", dl.Path([[0, 1], [1, 3], [2, 3], [0, 2]], 0, 3), (4,)),
    Row("knapsack", dl.Knapsack([3, 1, 4, 2], 5), (4,)),
    Row("knapsack-weightless", dl.Knapsack([0, 2, 6, 4, 2], torch.tensor(6)), (5,)),
    Row("spanning-tree", dl.SpanningTree(), (6,)),
    Row("spanning-tree-edges", dl.SpanningTree(GRAPH), (6,)),
    Row("arborescence", dl.Arborescence(), (3, 4)),
    Row("arborescence-single-root", dl.Arborescence(single_root=True), (4, 5)),
    Row("arborescence-lengths", dl.Arborescence(lengths=torch.tensor(3)), (4, 5)),
    Row("program", dl.Program(A_ub=torch.tensor([[3.0, 2.0, 4.0, 1.0]]), b_ub=torch.tensor([5.0])), (4,)),
    Row("program-equality", PROGRAM, (3,)),
]


@dataclass(frozen=True)
class PartsRow:
    """A structure whose scores are a tuple: the shapes of its parts without batch axes, factors perhaps shared."""

    name: str
    structure: dl.Structure
    shapes: tuple[tuple[int, ...], ...]
    batched_factors: bool = False  # whether each instance has factors of its own

    def scores(self, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        leading = [batch, *[batch if self.batched_factors else ()] * (len(self.shapes) - 1)]
        return tuple(
            torch.randn(*axes, *shape, generator=generator, dtype=torch.float64).to(dtype)
            for axes, shape in zip(leading, self.shapes, strict=True)
        )

    def cost(self, *batch: int, seed: int = 1) -> Tensor:
        return torch.randn(*batch, *self.shapes[0], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    @property
    def every(self) -> tuple[Tensor, ...]:
        """All parts of all structures, (N, *E) each."""
        return self.structure.enumerate(self.scores(), parts=True)


CYCLE = torch.tensor([[True, False, False], [False, True, False], [False, True, False]])

PARTS = [
    PartsRow("chain", dl.Chain(), ((4, 3), (3, 3))),
    PartsRow("chain-positions", dl.Chain(), ((4, 3), (3, 3, 3))),
    PartsRow("chain-start", dl.Chain(), ((3, 3), (3, 3), (3,))),
    PartsRow("chain-start-end", dl.Chain(), ((3, 4), (4, 4), (4,), (4,))),
    PartsRow("chain-own", dl.Chain(), ((3, 3), (1, 3, 3), (3,), (3,)), batched_factors=True),
    PartsRow("chain-short", dl.Chain(lengths=torch.tensor(2)), ((4, 3), (3, 3), (3,), (3,))),
    PartsRow("chain-forbidden", dl.Chain(forbidden=CYCLE), ((4, 3), (3, 3, 3), (3,), (3,))),
    PartsRow("chain-one", dl.Chain(), ((1, 3), (3, 3), (3,), (3,))),
]

# One value for each instance, so that instances can be told apart.
direct_loss = functools.partial(dl.direct_loss, reduction="none")

every_structure = pytest.mark.parametrize("row", STRUCTURES, ids=lambda row: row.name)
every_parts = pytest.mark.parametrize("row", PARTS, ids=lambda row: row.name)


# The structures with entries other than 0 and 1.
REAL_VALUED = ("program-equality", "custom-reals", "ranking", "ranking-tied", "ranking-mask", "finite", "interleaving")
zero_one_structures = pytest.mark.parametrize(
    "row", [row for row in STRUCTURES if row.name not in REAL_VALUED], ids=lambda row: row.name
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


@dataclass(frozen=True)
class LossRow:
    """A loss, called as ``call(scores, supervision, structure, **options, reduction=)``. A new loss is one more row."""

    name: str
    call: Callable[..., Any]
    supervision: str  # "cost" or "target"
    fits: Callable[[Row], bool]  # which structures it takes
    options: dict[str, Any]  # what it is called with
    changes: dict[str, Any]  # for each option, another value that must change something
    random: bool  # draws noise
    # How draws (S, B..., *E) are given as its noise.
    draws: Callable[[Tensor], Any] = lambda draws: draws
    # Of which structure a target is, where it is not of the one that is predicted.
    target_of: Callable[[Row], dl.Structure] = lambda row: row.structure
    smooth: bool = False  # a closed form, whose second derivatives are true; others raise


class Given(dl.Normal):
    """Draws that are given, for a rule that needs a density."""

    def __init__(self, draws: Tensor):
        super().__init__()
        object.__setattr__(self, "draws", draws)

    def sample(self, shape: Any, **options: Any) -> Tensor:
        assert self.draws.shape == tuple(shape)
        return self.draws


@dataclass(frozen=True)
class LayerRow:
    """A layer, called as ``call(scores, structure, **options)``. A new layer is one more row."""

    name: str
    call: Callable[..., Any]
    structure: dl.Structure | None  # None: it takes values, no structure
    wrong: dl.Structure | None  # one that it does not fit; None: it takes all
    entries: tuple[int, ...]
    options: dict[str, Any]
    changes: dict[str, Any]
    exact: bool = True  # its gradient is the derivative of its value, not an estimate or a replacement


class SharedNoise(dl.Normal):
    """The same draws for every instance, wherever it stands in a batch or under vmap, over entries of one axis."""

    def sample(self, shape, *, generator=None, dtype=None, device=None):
        draws = 2 * torch.sin(12.9898 * torch.arange(shape[0] * shape[-1]))
        return draws.reshape(shape[0], *[1] * (len(shape) - 2), shape[-1]).expand(shape).to(dtype)


def of_known(row: Row) -> bool:
    """Solutions can be listed without solving."""
    return isinstance(row.structure, dl.Pool | dl.Finite)


LOSSES = [
    LossRow(
        "direct",
        dl.direct_loss,
        "cost",
        lambda row: True,
        {"epsilon": -1.0, "scale": 1.0, "samples": 2},
        {"epsilon": 0.5, "sides": "both", "scale": 2.0, "noise": dl.Normal(), "samples": 3},
        True,
    ),
    LossRow("direct-noiseless", dl.direct_loss, "cost", lambda row: True, {"epsilon": -1.0}, {"sides": "both"}, False),
    LossRow("hinge", dl.structured_hinge, "cost", lambda row: True, {}, {"fear": 0.0, "hope": 0.5}, False),
    LossRow("ramp", dl.structured_hinge, "cost", lambda row: True, {"hope": 0.0}, {"fear": 2.0}, False),
    LossRow("spo-plus", dl.spo_plus, "cost", lambda row: True, {}, {}, False),
    LossRow(
        "reinforce",
        dl.reinforce,
        "cost",
        lambda row: True,
        {"samples": 2},
        {"scale": 2.0, "noise": dl.Normal(), "samples": 3},
        True,
        draws=Given,
    ),
    LossRow(
        "fenchel-young",
        dl.fenchel_young,
        "target",
        lambda row: True,
        {"samples": 2},
        {"scale": 2.0, "noise": dl.Normal(), "samples": 3},
        True,
    ),
    LossRow("contrastive", dl.contrastive, "target", of_known, {}, {"form": "nce"}, False, smooth=True),
    LossRow(
        "rank-pool",
        dl.rank_pool,
        "cost",
        of_known,
        {},
        {"form": "pairwise", "temperature": 2.0},
        False,
        smooth=True,
    ),
    LossRow(
        "rank-pool-pairs", dl.rank_pool, "cost", of_known, {"form": "pairwise"}, {"margin": 0.1}, False, smooth=True
    ),
    LossRow(
        "smooth-top-k",
        dl.smooth_top_k,
        "target",
        lambda row: isinstance(row.structure, dl.Subset | dl.Choice),
        {},
        {"temperature": 0.5, "margin": 0.5},
        False,
        target_of=lambda row: dl.Choice(mask=row.structure.mask),
        smooth=True,
    ),
    LossRow("likelihood", dl.likelihood, "target", lambda row: row.structure.summable, {}, {}, False, smooth=True),
]

SOFT = {"regularization": 5.0, "kind": "entropic", "descending": True}

LAYERS = [
    LayerRow("sinkhorn", dl.sinkhorn, dl.Matching(), dl.Choice(), (3, 3), {}, {"temperature": 2.0, "iterations": 1}),
    LayerRow("sinkhorn-masked", dl.sinkhorn, dl.Matching(MASK), dl.Bits(), (3, 3), {}, {"temperature": 2.0}),
    LayerRow("relaxed-subset", dl.relaxed_subset, dl.Subset(2), dl.Matching(), (5,), {}, {"temperature": 2.0}),
    LayerRow("neuralsort", dl.neuralsort, None, None, (5,), {}, {"temperature": 2.0, "k": 2}),
    LayerRow("neural-neighbors", dl.neural_neighbors, dl.Subset(2), dl.Bits(), (5,), {}, {"temperature": 2.0}),
    LayerRow("ot-top-k", dl.ot_top_k, dl.Subset(2), dl.Choice(), (5,), {}, {"temperature": 2.0}),
    LayerRow("soft-sort", dl.soft_sort, None, None, (5,), {"regularization": 2.0}, SOFT),
    LayerRow("soft-rank", dl.soft_rank, None, None, (5,), {}, SOFT),
    LayerRow("soft-rank-entropic", dl.soft_rank, None, None, (5,), {"kind": "entropic"}, {"regularization": 5.0}),
    *[
        LayerRow(f"softmax-{row.name}", dl.softmax, row.structure, dl.Matching(), row.entries, {}, {"temperature": 2.0})
        for row in STRUCTURES
        if row.structure.summable
    ],
    LayerRow(
        "perturbed",
        dl.perturbed,
        dl.Subset(2),
        None,
        (5,),
        {"noise": SharedNoise(), "samples": 6},
        {"scale": 0.5, "noise": dl.Gumbel(), "samples": 4, "baseline": False, "antithetic": True},
        exact=False,
    ),
    LayerRow("blackbox", dl.blackbox, dl.Subset(2), None, (5,), {}, {"step": 5.0}, exact=False),
    LayerRow(
        "imle",
        dl.imle,
        dl.Subset(2),
        None,
        (5,),
        {"noise": SharedNoise(), "samples": 3},
        {"step": 5.0, "sides": "both", "scale": 0.5, "noise": dl.Gumbel(), "samples": 4},
        exact=False,
    ),
    LayerRow("identity", dl.identity, dl.Subset(2), None, (5,), {}, {"projection": "mean"}, exact=False),
    LayerRow("sparsemap-choice", dl.sparsemap, dl.Choice(), None, (5,), {}, {}),
    LayerRow("sparsemap-subset", dl.sparsemap, dl.Subset(2), None, (5,), {}, {}),
    LayerRow("sparsemap-matching", dl.sparsemap, dl.Matching(), None, (3, 3), {}, {}),
    LayerRow("sparsemap-tree", dl.sparsemap, dl.SpanningTree(), None, (6,), {}, {}),
]

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def _pairs(fit: bool) -> pytest.MarkDecorator:
    pairs = [(loss, row) for loss in LOSSES for row in STRUCTURES if loss.fits(row) == fit]
    return pytest.mark.parametrize(("loss", "row"), pairs, ids=lambda either: either.name)


every_loss_and_structure, every_misfit = _pairs(True), _pairs(False)
every_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
every_estimate = pytest.mark.parametrize(
    "layer", [layer for layer in LAYERS if not layer.exact], ids=lambda layer: layer.name
)
