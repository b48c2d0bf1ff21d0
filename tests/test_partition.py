"""``log_partition`` against the sum over all structures, its gradient against their mean, and what is made of it."""

import math

import pytest
import torch
from tables import PARTS, STRUCTURES, every_parts
from torch.autograd import gradcheck, gradgradcheck

import directloss as dl
from directloss.structures.partition import SUMMABLE

SUMMED = [row for row in STRUCTURES if row.structure.summable]
every_summed = pytest.mark.parametrize("row", SUMMED, ids=lambda row: row.name)
every_row = pytest.mark.parametrize("row", [*SUMMED, *PARTS], ids=lambda row: f"{type(row).__name__}-{row.name}")
FLAT = {"rtol": 0, "atol": 1e-9}


def leaves(row, *batch, factor=1.0, seed=0):
    drawn = row.scores(*batch, seed=seed)
    return tuple((factor * part).requires_grad_() for part in (drawn if isinstance(drawn, tuple) else (drawn,)))


def given(parts):
    return parts if len(parts) > 1 else parts[0]


def enumerated(row, parts):
    """``log sum exp`` over all structures, from the definition."""
    every = row.every if isinstance(row.every, tuple) else (row.every,)
    total = 0.0
    for part, y in zip(parts, every, strict=True):
        dims = y.dim() - 1
        part = part.expand(y.shape[1:]) if part.dim() < dims else part
        total = total + (part.unsqueeze(-dims - 1) * y).sum(tuple(range(-dims, 0)))
    return total.logsumexp(-1)


def gradients(value, parts):
    return torch.autograd.grad(value.sum(), parts, materialize_grads=True)


@every_row
@pytest.mark.parametrize("factor", [0.0, 1.0, 30.0, 1000.0])
def test_it_is_the_sum_over_all_structures_and_its_gradient_their_mean(row, factor):
    parts = leaves(row, 3, factor=factor)
    ours, theirs = row.structure.log_partition(given(parts)), enumerated(row, parts)
    assert ours.shape == (3,)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-9)
    torch.testing.assert_close(gradients(ours, parts), gradients(theirs, parts), **FLAT)


@every_summed
def test_its_second_derivative_is_the_covariance_of_the_structures(row):
    scores = row.scores(seed=3)
    hessian = torch.autograd.functional.hessian(row.structure.log_partition, scores).reshape(2 * [scores.numel()])
    every = row.every.flatten(1)
    p = (every @ scores.flatten()).softmax(0)
    centered = every - p @ every
    torch.testing.assert_close(hessian, centered.mT @ (p.unsqueeze(-1) * centered), **FLAT)


def test_the_structures_that_have_one_are_those_that_errors_name():
    kinds = [getattr(dl, name) for name, module in dl._PUBLIC.items() if module.startswith("structures.")]
    assert set(SUMMABLE) == {kind.__name__ for kind in kinds if isinstance(kind, type) and kind.summable}
    for call in (
        dl.Matching().log_partition,
        lambda scores: dl.softmax(scores, dl.Matching()),
        lambda scores: dl.likelihood(scores, scores, dl.Matching()),
    ):
        with pytest.raises(TypeError, match=r"does not relax Matching\(\).* it takes Arborescence, .* and Subset"):
            call(torch.zeros(3, 3))


SIZES = [
    (dl.Choice(), (50,), math.log(50)),
    (dl.Bits(), (50,), 50 * math.log(2)),
    (dl.Subset(70), (200,), math.log(math.comb(200, 70))),
    (dl.Subset(7), (7,), 0.0),
    (dl.Chain(), (40, 6), 40 * math.log(6)),
    (dl.SpanningTree(), (30 * 29 // 2,), 28 * math.log(30)),
    (dl.Arborescence(), (25, 26), 24 * math.log(26)),
    (dl.Arborescence(single_root=True), (25, 26), 24 * math.log(25)),
]


@pytest.mark.parametrize(("structure", "entries", "count"), SIZES, ids=lambda value: repr(value))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_without_scores_it_is_the_logarithm_of_their_number(structure, entries, count, dtype):
    found = structure.log_partition(torch.zeros(2, *entries, dtype=dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.full((2,), count, dtype=dtype), rtol=3e-6, atol=1e-6)


@every_summed
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_narrow_dtypes_are_rounded_only_in_the_end(row, dtype):
    scores = row.scores(4, dtype=dtype)
    wide = row.structure.log_partition(scores.double())
    torch.testing.assert_close(row.structure.log_partition(scores), wide.to(dtype), rtol=2e-6, atol=2e-6)


INSTANCES = [
    (dl.Subset, (torch.tensor([1, 2, 5]),), {}, (5,)),
    (dl.Subset, (torch.tensor([1, 2, 3]), torch.tensor([1, 0, 1, 1, 0, 1]).bool()), {}, (6,)),
    (dl.Choice, (torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1]]).bool(),), {}, (3,)),
    (dl.Bits, (torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1]]).bool(),), {}, (3,)),
    (dl.Chain, (torch.tensor([0, 1, 3]),), {}, (3, 2)),
    (dl.Arborescence, (torch.tensor([0, 1, 3]),), {"single_root": True}, (3, 4)),
    (dl.Arborescence, (torch.tensor([0, 2, 3]),), {}, (3, 4)),
    (dl.Finite, (torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0)),), {}, (2,)),
    (
        dl.SpanningTree,
        (torch.tensor([[[0, 1], [0, 1], [1, 1]], [[0, 1], [1, 2], [2, 0]], [[3, 0], [0, 1], [2, 3]]]),),
        {},
        (3,),
    ),
]


@pytest.mark.parametrize(
    ("kind", "data", "options", "entries"), INSTANCES, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_instance_has_its_own_data(kind, data, options, entries):
    scores = torch.randn(3, *entries, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    value = kind(*data, **options).log_partition(scores)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    for index, one in enumerate(scores.detach()):
        own = kind(*(d[index] if len(d) == 3 else d for d in data), **options)
        every = own.enumerate(one)
        objective = (every * one).flatten(1).sum(1)
        mean = (objective.softmax(0) @ every.flatten(1)).reshape(entries)
        torch.testing.assert_close(value[index], objective.logsumexp(0), **FLAT)
        torch.testing.assert_close(gradient[index], mean, **FLAT)
    mapped = torch.func.vmap(lambda s, *d: kind(*d, **options).log_partition(s))
    if all(len(d) == 3 for d in data) and kind is not dl.SpanningTree:  # graphs of different sizes cannot be mapped
        torch.testing.assert_close(mapped(scores, *data), value)


def test_a_bridge_that_nobody_likes_is_still_crossed():
    """Determinants of exponentials would be zero here: two pairs of nodes, joined by one edge."""
    graph = torch.tensor([[0, 1], [0, 1], [1, 2], [2, 3]])
    scores = torch.tensor([900.0, 900.0, -2000.0, 900.0], dtype=torch.float64, requires_grad=True)
    value = dl.SpanningTree(graph).log_partition(scores)
    value.backward()
    torch.testing.assert_close(value.item(), -200.0 + math.log(2))
    torch.testing.assert_close(scores.grad, torch.tensor([0.5, 0.5, 1.0, 1.0], dtype=torch.float64))
    heads = torch.tensor([[-1000.0, 0.0, 1000.0], [-1000.0, 1000.0, 0.0]])  # two words that only like each other
    torch.testing.assert_close(dl.Arborescence().log_partition(heads).item(), math.log(2), rtol=0, atol=1e-4)


def test_scores_that_reach_far_are_summed_in_float64():
    scores = torch.tensor([3e37, -3e37, 1e30])
    assert dl.Choice(mask=torch.tensor([False, True, True])).log_partition(scores).item() == scores[2].item()


def test_nothing_to_decide_is_one_structure():
    for structure, entries in ((dl.Bits(), (0,)), (dl.Arborescence(), (0, 1)), (dl.Chain(), (0, 3))):
        scores = torch.zeros(2, *entries, requires_grad=True)
        assert structure.log_partition(scores).tolist() == [0.0, 0.0]
        assert dl.softmax(scores, structure).shape == scores.shape


def test_an_instance_may_take_none():
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    value = dl.Subset(torch.tensor([0, 4])).log_partition(scores)
    torch.testing.assert_close(value, torch.stack([torch.zeros(()), scores[1].sum()]))
    torch.testing.assert_close(gradients(value, (scores,))[0], torch.tensor([[0.0] * 4, [1.0] * 4]))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="NaN or infinite"):
        dl.Choice().log_partition(torch.tensor([0.0, float("nan")]))
    blocked = dl.Chain(forbidden=torch.tensor([[[True, True], [True, True]]]))
    with pytest.raises(ValueError, match=r"leave instance \(0,\) without labels"):
        blocked.log_partition(torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match=r"leave instance \(1,\) without labels"):
        dl.Chain(mask=torch.tensor([[[True, True]], [[False, False]]])).log_partition(torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match="cannot take k = 4 of n = 3"):
        dl.Subset(torch.tensor([1, 4])).log_partition(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="beyond the 3 positions"):
        dl.Chain(lengths=4).log_partition(torch.zeros(3, 2))


@every_row
def test_likelihood_and_its_gradient_are_those_of_the_enumerated_distribution(row):
    parts = leaves(row, 3)
    target = row.structure.solve(given(tuple(part.detach() for part in leaves(row, 3, seed=9))))
    ours = dl.likelihood(given(parts), target, row.structure, reduction="none")
    log_p = -enumerated(row, parts)
    for part, vertex in zip(parts, row.structure.complete(target, given(parts)), strict=True):
        log_p = log_p + vertex.inner(part)
    torch.testing.assert_close(ours, -log_p, **FLAT)
    torch.testing.assert_close(gradients(ours, parts), gradients(-log_p, parts), **FLAT)
    assert (ours >= 0).all()


@every_parts
def test_the_gradient_of_likelihood_passes_finite_differences_in_every_part(row):
    target = row.structure.solve(row.scores(2, seed=9))
    call = lambda *parts: dl.likelihood(parts, target, row.structure)  # noqa: E731
    assert gradcheck(call, leaves(row, 2), atol=1e-6, rtol=1e-6)


def test_of_one_of_n_it_is_cross_entropy_and_of_bits_its_binary_form():
    scores = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    label = scores.flip(0).argmax(-1)
    target = torch.nn.functional.one_hot(label, 6)
    torch.testing.assert_close(
        dl.likelihood(scores, target, dl.Choice()), torch.nn.functional.cross_entropy(scores, label)
    )
    soft = scores.flip(0).softmax(-1)
    torch.testing.assert_close(
        dl.likelihood(scores, soft, dl.Choice(), reduction="sum"),
        torch.nn.functional.cross_entropy(scores, soft, reduction="sum"),
    )
    binary = torch.nn.functional.binary_cross_entropy_with_logits(scores, soft, reduction="none").sum(-1)
    torch.testing.assert_close(dl.likelihood(scores, soft, dl.Bits(), reduction="none"), binary)


def test_a_large_offset_costs_no_digits_of_likelihood():
    scores = torch.randn(10, 5, generator=torch.Generator().manual_seed(0)).mul(8).round()
    target = dl.Subset(2).solve(scores.flip(-1))
    plain, shifted = (dl.likelihood(scores + shift, target, dl.Subset(2)) for shift in (0, 2.0**20))
    torch.testing.assert_close(shifted, plain, rtol=1e-6, atol=1e-6)


def test_likelihood_returns_the_most_likely_structure():
    row = STRUCTURES[0]
    value, y = dl.likelihood(
        row.scores(4), row.structure.solve(row.scores(4, seed=1)), row.structure, return_structure=True
    )
    assert torch.equal(y, row.structure.solve(row.scores(4)))
    assert value.shape == ()


@every_row
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_softmax_is_the_mean_structure_and_its_gradient_that_of_the_mean(row, temperature):
    parts = leaves(row, 2)
    means = dl.softmax(given(parts), row.structure, temperature, parts=True)
    every = row.every if isinstance(row.every, tuple) else (row.every,)

    def mean(*parts):
        """Of the first part, by enumeration."""
        total = 0.0
        for part, y in zip(parts, every, strict=True):
            dims = y.dim() - 1
            part = part.expand(y.shape[1:]) if part.dim() < dims else part
            total = total + (part.unsqueeze(-dims - 1) * y).sum(tuple(range(-dims, 0)))
        p = (total / temperature).softmax(-1)
        return [torch.tensordot(p, y, 1) for y in every]

    torch.testing.assert_close(list(means), mean(*parts), **FLAT)
    assert torch.equal(dl.softmax(given(parts), row.structure, temperature), means[0])
    towards = torch.randn(means[0].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ours, theirs = (gradients((y * towards).sum(), parts) for y in (means[0], mean(*parts)[0]))
    torch.testing.assert_close(ours, theirs, **FLAT)
    # Finite differences of the enumeration, along a random direction.
    step, h = [torch.randn_like(part) for part in parts], 1e-5
    ahead, behind = (mean(*(p.detach() + s * d for p, d in zip(parts, step, strict=True)))[0] for s in (h, -h))
    slope = sum((g * d).sum() for g, d in zip(ours, step, strict=True))
    torch.testing.assert_close(slope, ((ahead - behind) * towards).sum() / (2 * h), rtol=1e-6, atol=1e-6)


@every_summed
def test_softmax_lies_between_the_best_structure_and_the_mean_of_all(row):
    scores = row.scores(3)
    torch.testing.assert_close(dl.softmax(scores, row.structure, 1e-4), row.structure.solve(scores))
    torch.testing.assert_close(
        dl.softmax(scores, row.structure, 1e9), row.every.mean(0).expand_as(scores), rtol=0, atol=1e-7
    )


def test_softmax_has_a_second_derivative_and_records_none_where_none_is_wanted():
    for structure, entries in ((dl.Subset(2), (4,)), (dl.SpanningTree(), (6,)), (dl.Chain(), (3, 2))):
        scores = torch.randn(2, *entries, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        assert gradgradcheck(lambda s, structure=structure: dl.softmax(s, structure), scores.clone().requires_grad_())
        assert not dl.softmax(scores, structure).requires_grad
        with torch.no_grad():
            assert not dl.softmax(scores.clone().requires_grad_(), structure).requires_grad


def test_perturbed_softmax_is_gumbel_softmax():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    noise = dl.Gumbel().sample((4, 3, 5), generator=torch.Generator().manual_seed(1))
    y = dl.softmax(dl.perturb(logits, noise=noise), dl.Choice(), temperature=0.7)
    torch.testing.assert_close(y, ((logits + noise) / 0.7).softmax(-1))
