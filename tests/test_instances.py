"""Data of an instance: masks, numbers and tensors that broadcast to the batch, samples and steps included."""

import copy
import pickle

import pytest
import torch
from tables import direct_loss, positive_allowed
from torch.func import grad, vmap

import directloss as dl

MASKS = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 0, 1], [1, 0, 1, 1, 0]]).bool()
FORBIDDEN = torch.tensor([[[1, 0], [0, 0]], [[0, 0], [0, 1]], [[0, 0], [0, 0]]]).bool()
# A structure for a batch of three, and the same for its instances one by one.
BATCHED = {
    "choice": (dl.Choice(mask=MASKS), [dl.Choice(mask=mask) for mask in MASKS], (5,)),
    "bits": (dl.Bits(mask=MASKS), [dl.Bits(mask=mask) for mask in MASKS], (5,)),
    "subset-mask": (dl.Subset(2, mask=MASKS), [dl.Subset(2, mask=mask) for mask in MASKS], (5,)),
    "subset-k": (dl.Subset(torch.tensor([1, 3, 2])), [dl.Subset(k) for k in (1, 3, 2)], (5,)),
    "subset-both": (
        dl.Subset(torch.tensor([1, 3, 2]), mask=MASKS),
        [dl.Subset(k, mask=mask) for k, mask in zip((1, 3, 2), MASKS, strict=True)],
        (5,),
    ),
    "matching": (dl.Matching(forbidden=FORBIDDEN), [dl.Matching(forbidden=mask) for mask in FORBIDDEN], (2, 2)),
    "custom": (
        dl.custom(positive_allowed).given(MASKS),
        [dl.custom(positive_allowed).given(allowed) for allowed in MASKS],
        (5,),
    ),
}

every_batch = pytest.mark.parametrize(("structure", "alone", "entries"), BATCHED.values(), ids=BATCHED.keys())


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_batch
def test_a_batch_is_its_instances(structure, alone, entries):
    scores, cost = drawn(3, *entries), drawn(3, *entries, seed=1)
    y, along = structure.solve(scores), structure.solve_along(scores, cost, (0.0, 1.0, -2.0))
    for index, one in enumerate(alone):
        assert torch.equal(y[index], one.solve(scores[index]))
        assert torch.equal(along[:, index], one.solve_along(scores[index], cost[index], (0.0, 1.0, -2.0)))


@every_batch
@pytest.mark.parametrize("sides", ["one", "both"])
def test_data_are_expanded_over_samples_and_steps(structure, alone, entries, sides):
    scores, cost, noise = drawn(3, *entries), drawn(3, *entries, seed=1), drawn(4, 3, *entries, seed=2)
    leaf, scale = (
        scores.clone().requires_grad_(),
        torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True),
    )
    direct_loss(leaf, cost, structure, epsilon=-1.0, sides=sides, scale=scale, noise=noise).sum().backward()
    for index, one in enumerate(alone):
        own, own_scale = scores[index].clone().requires_grad_(), scale.detach()[index].clone().requires_grad_()
        direct_loss(own, cost[index], one, epsilon=-1.0, sides=sides, scale=own_scale, noise=noise[:, index]).backward()
        torch.testing.assert_close(leaf.grad[index], own.grad)
        torch.testing.assert_close(scale.grad[index], own_scale.grad)


@every_batch
def test_data_broadcast_along_leading_batch_axes(structure, alone, entries):
    scores = drawn(2, 3, *entries)
    if isinstance(structure.tensors(), tuple) and repr(structure).startswith("custom"):
        structure = dl.custom(positive_allowed).given(MASKS.unsqueeze(0))  # given data have all batch axes
    y = structure.solve(scores)
    for first in range(2):
        for index, one in enumerate(alone):
            assert torch.equal(y[first, index], one.solve(scores[first, index]))


MAKE = {
    "choice": (lambda mask: dl.Choice(mask=mask), MASKS),
    "bits": (lambda mask: dl.Bits(mask=mask), MASKS),
    "subset": (lambda mask: dl.Subset(2, mask=mask), MASKS),
    "subset-k": (dl.Subset, torch.tensor([1, 3, 2])),
    "custom": (lambda allowed: dl.custom(positive_allowed).given(allowed), MASKS),
}


@pytest.mark.parametrize(("make", "data"), MAKE.values(), ids=MAKE.keys())
@pytest.mark.parametrize("sides", ["one", "both"])
def test_vmap_sees_data_that_it_maps(make, data, sides):
    scores, cost = drawn(3, 5), drawn(3, 5, seed=1)

    def loss(scores, cost, data):
        return dl.direct_loss(scores, cost, make(data), epsilon=-1.0, sides=sides)

    leaf = scores.clone().requires_grad_()
    whole = direct_loss(leaf, cost, make(data), epsilon=-1.0, sides=sides)
    whole.sum().backward()
    torch.testing.assert_close(vmap(loss)(scores, cost, data), whole.detach())
    torch.testing.assert_close(vmap(grad(loss))(scores, cost, data), leaf.grad)
    # Mapped data, shared scores; a batch axis inside of what vmap maps.
    shared = vmap(loss, in_dims=(None, None, 0))(scores[0], cost[0], data)
    torch.testing.assert_close(
        shared, direct_loss(scores[:1].expand(3, 5), cost[0], make(data), epsilon=-1.0, sides=sides)
    )
    pair = torch.stack([scores, scores.flip(0)], 1)
    inside = vmap(lambda s, c, d: direct_loss(s, c, make(d.unsqueeze(0) if d.dim() else d), epsilon=-1.0, sides=sides))
    expected = torch.stack([direct_loss(pair[:, i], cost, make(data), epsilon=-1.0, sides=sides) for i in range(2)], 1)
    torch.testing.assert_close(inside(pair, cost, data), expected)


@every_batch
def test_structures_can_be_pickled_and_copied(structure, alone, entries):
    scores = drawn(3, *entries)
    for other in (pickle.loads(pickle.dumps(structure)), copy.deepcopy(structure)):
        assert torch.equal(other.solve(scores), structure.solve(scores))
        assert repr(other) == repr(structure)


@every_batch
def test_a_criterion_takes_a_structure_at_each_call(structure, alone, entries):
    scores, cost = drawn(3, *entries).requires_grad_(), drawn(3, *entries, seed=1)
    criterion = dl.DirectLoss(alone[0], epsilon=-1.0)
    torch.testing.assert_close(
        criterion(scores, cost, structure=structure), dl.direct_loss(scores, cost, structure, epsilon=-1.0)
    )


def test_masks_and_numbers_hold(generator):
    scores = torch.randn(50, 3, 5, generator=generator)
    for make in (dl.Choice, dl.Bits, lambda mask: dl.Subset(2, mask=mask)):
        assert not (make(MASKS).solve(scores).bool() & ~MASKS).any()
    assert torch.equal(
        dl.Subset(torch.tensor([1, 3, 2])).solve(scores).sum(-1), torch.tensor([1.0, 3, 2]).expand(50, 3)
    )
    assert dl.Subset(torch.tensor([0, 3, 5])).solve(scores).sum(-1)[0].tolist() == [0.0, 3.0, 5.0]


BAD = [
    (lambda: dl.Choice(mask=MASKS.float()), TypeError, "mask is torch.float32, expected a boolean tensor"),
    (lambda: dl.Choice(mask=torch.tensor([[True], [False]])), ValueError, r"instance \(1,\) without an entry"),
    (lambda: dl.Bits(mask=[True]), TypeError, "mask is list"),
    (lambda: dl.Subset(torch.tensor([1.0, 2.0])), TypeError, "k is torch.float32, expected whole numbers"),
    (lambda: dl.Subset(torch.tensor([1, -2])), ValueError, "k has -2 among its numbers"),
    (lambda: dl.Subset(4, mask=MASKS), ValueError, r"instance \(1,\) only 3 entries for k = 4"),
    (lambda: dl.Subset(torch.tensor([1, 6, 2])).solve(torch.zeros(3, 5)), ValueError, "k = 6 of n = 5"),
    (lambda: dl.Choice(mask=MASKS).solve(torch.zeros(2, 5)), ValueError, r"mask has batch axes \(3,\).*\(2,\)"),
    (lambda: dl.Choice(mask=MASKS).solve(torch.zeros(3, 4)), ValueError, r"mask of \(5,\) entries.*\(4,\)"),
    (lambda: dl.custom(positive_allowed).given(3.0), TypeError, "given: got float, expected tensors"),
    (
        lambda: dl.custom(positive_allowed).given(torch.zeros(2, 1)).solve(torch.zeros(3, 5)),
        ValueError,
        r"\(2, 1\).*\(3,\)",
    ),
    (
        lambda: dl.custom(positive_allowed).given(torch.zeros(())).solve(torch.zeros(3, 5)),
        ValueError,
        "start with the 1 batch axes",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_data_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
