"""Chains against an independent Viterbi on many instances, and their bad input.

``DIRECTLOSS_FUZZ_INSTANCES`` says how many (``make fuzz``: 200,000).
"""

import os

import numpy as np
import pytest
import torch

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "4000"))
BATCH = 50

KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "binary": lambda rng, shape: (rng.random(shape) < 0.5).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "huge": lambda rng, shape: 1e30 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
    "large offset": lambda rng, shape: 1e6 + rng.standard_normal(shape),
}


def best_values(unary, transitions, start, end, lengths, forbidden, mask):
    """The value of the best labels of every instance, all arguments dense; minus infinity where there are none."""
    unary = np.where(mask, unary, -np.inf)
    pairs = np.where(forbidden, -np.inf, transitions)
    values = np.zeros(len(unary))
    for instance, length in enumerate(lengths):
        if length == 0:
            continue
        now = start[instance] + unary[instance, 0]
        for t in range(1, length):
            now = (now[:, None] + pairs[instance, t - 1]).max(0) + unary[instance, t]
        values[instance] = (now + end[instance]).max()
    return values


def random_case(seed):
    rng = np.random.default_rng(seed)
    kind = KINDS[sorted(KINDS)[seed % len(KINDS)]]
    n, labels = int(rng.integers(1, 9)), int(rng.integers(1, 10))

    def factor(*own):
        return kind(rng, ((BATCH, *own) if rng.random() < 0.5 else own))

    per_position = max(0, n - 1) if rng.random() < 0.5 else 1
    parts = [kind(rng, (BATCH, n, labels)), factor(per_position, labels, labels), factor(labels), factor(labels)]
    parts = parts[: int(rng.integers(1, 5))]
    lengths = rng.integers(0, n + 1, BATCH) if rng.random() < 0.5 else None
    forbidden = mask = None
    if rng.random() < 0.4:
        leading = (BATCH,) if rng.random() < 0.5 else ()
        forbidden = rng.random((*leading, max(0, n - 1) if rng.random() < 0.5 else 1, labels, labels)) < 0.2
    if rng.random() < 0.3:
        mask = rng.random((BATCH, n, labels) if rng.random() < 0.5 else (1, labels)) < 0.8
    return kind, parts, lengths, forbidden, mask


def tensor(array):
    return None if array is None else torch.from_numpy(np.ascontiguousarray(array))


@pytest.mark.parametrize("seed", range(-(-INSTANCES // BATCH)))
def test_labels_are_as_good_as_those_of_a_plain_viterbi(seed):
    _, parts, lengths, forbidden, mask = random_case(seed)
    n, labels = parts[0].shape[1:]
    dtype = torch.float32 if seed % 3 == 0 and np.abs(parts[0]).max() < 1e30 else torch.float64
    scores = tuple(tensor(part).to(dtype) for part in parts)
    dl.set_num_threads(1 + seed % 2)
    structure = dl.Chain(tensor(lengths), tensor(forbidden), tensor(mask))
    dense = [part.double().numpy() for part in scores]
    shapes = [(BATCH, n, labels), (BATCH, n - 1, labels, labels), (BATCH, labels), (BATCH, labels)]
    dense = [np.broadcast_to(part, shape) for part, shape in zip(dense, shapes, strict=False)]
    dense += [np.zeros(shape) for shape in shapes[len(dense) :]]
    whole = np.full(BATCH, n) if lengths is None else lengths
    data = (
        whole,
        np.broadcast_to(False if forbidden is None else forbidden, shapes[1]),
        np.broadcast_to(True if mask is None else mask, shapes[0]),
    )
    best = best_values(*dense, *data)
    if not np.isfinite(best).all():
        first = int(np.flatnonzero(~np.isfinite(best))[0])
        with pytest.raises(ValueError, match="without labels") as error:
            structure.solve(scores)
        blamed = int(str(error.value).split("instance (")[1].split(",")[0])
        assert not np.isfinite(best[blamed])
        assert blamed >= first
        return
    y = [part.double().numpy() for part in structure.solve(scores, parts=True)]
    used = np.arange(n) < whole[:, None]
    assert ((y[0] == 0) | (y[0] == 1)).all()
    assert (y[0].sum(-1) == used).all()
    assert not y[0][~data[2]].any()
    pairs = y[0][:, :-1, :, None] * y[0][:, 1:, None, :]
    assert not pairs[data[1]].any()
    if len(y) > 1:
        assert (y[1] == pairs).all()
    if len(y) > 2:
        assert (y[2] == y[0][:, 0]).all()
    if len(y) > 3:
        ends = y[0][np.arange(BATCH), np.maximum(whole - 1, 0)]
        assert (y[3] == ends).all()
    reached = sum((a * b).reshape(BATCH, -1).sum(1) for a, b in zip(y, dense, strict=False))
    magnitude = max(np.abs(part).max(initial=0) for part in dense)
    np.testing.assert_allclose(reached, best, rtol=0, atol=4 * n * magnitude * 1e-15)
    cost = tensor(np.random.default_rng(seed).integers(-2, 3, (n, labels)).astype(float))
    for step, along in zip((0.0, 1.5), structure.solve_along(scores, cost.to(dtype), (0.0, 1.5)), strict=True):
        shifted = dense[0] + step * cost.numpy()
        alone = best_values(shifted, *dense[1:], *data)
        y = structure.complete(along, scores)
        reached = sum(v.dense(torch.float64).numpy() * part for v, part in zip(y[:1], [shifted], strict=True))
        reached = reached.reshape(BATCH, -1).sum(1)
        for v, part in zip(y[1:], dense[1:], strict=False):
            reached = reached + (v.dense(torch.float64).numpy() * part).reshape(BATCH, -1).sum(1)
        np.testing.assert_allclose(reached, alone, rtol=0, atol=8 * n * (magnitude + 3) * 1e-15)


def test_lengths_from_0_to_n_in_one_batch_are_those_of_shorter_chains(generator):
    n, labels = 6, 4
    unary, factors = (
        torch.randn(3, n + 1, n, labels, generator=generator),
        [torch.randn(labels, labels), *torch.randn(2, labels)],
    )
    y = dl.Chain(lengths=torch.arange(n + 1)).solve((unary, *factors), parts=True)
    for length in range(n + 1):
        alone = dl.Chain().solve((unary[:, length, :length], *factors), parts=True)
        assert torch.equal(y[0][:, length, :length], alone[0])
        assert torch.equal(y[1][:, length, : max(0, length - 1)], alone[1])
        assert torch.equal(y[2][:, length], alone[2])
        assert torch.equal(y[3][:, length], alone[3])
        assert not y[0][:, length, length:].any()
        assert not y[1][:, length, max(0, length - 1) :].any()


def test_positions_beyond_a_length_get_no_gradient_and_do_not_matter(generator):
    unary = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    transitions, cost = torch.randn(4, 4, 3, 3, generator=generator).double(), torch.randn(4, 5, 3, generator=generator)
    lengths = torch.tensor([0, 1, 3, 5])
    beyond = torch.arange(5) >= lengths.unsqueeze(-1)
    results = []
    for padding in (0.0, 1e6):
        leaves = unary.masked_fill(beyond.unsqueeze(-1), padding).requires_grad_(), transitions.clone().requires_grad_()
        scale = torch.ones(4, 5, 3, dtype=torch.float64, requires_grad=True)
        dl.direct_loss(leaves, cost.double(), dl.Chain(lengths), epsilon=-3.0, scale=scale, samples=20,
                       generator=torch.Generator().manual_seed(1)).backward()  # fmt: skip
        for grad in (leaves[0].grad, scale.grad):
            assert not grad[beyond].any()
            assert grad[~beyond].any()
        assert not leaves[1].grad[beyond[:, 1:]].any()
        results.append([leaves[0].grad, leaves[1].grad])
    torch.testing.assert_close(*results)


def test_a_shared_matrix_gets_the_summed_gradient(generator):
    unary, shared = torch.randn(6, 5, 3, generator=generator), torch.randn(3, 3, generator=generator)
    cost = torch.randn(6, 5, 3, generator=generator)
    gradients = []
    for transitions in (shared, shared.expand(4, 3, 3), shared.expand(6, 1, 3, 3), shared.expand(6, 4, 3, 3)):
        leaf = transitions.clone().requires_grad_()
        dl.direct_loss((unary, leaf), cost, dl.Chain(), epsilon=-1.0, reduction="sum").backward()
        gradients.append(leaf.grad.reshape(-1, 3, 3).sum(0))
    assert gradients[0].any()
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0])


def test_ties_go_to_the_smallest_label_whatever_the_batch_and_threads():
    zeros = (torch.zeros(300, 20, 8), torch.zeros(8, 8))
    for threads in (1, 2):
        dl.set_num_threads(threads)
        y = dl.Chain().solve(zeros)
        assert (y.argmax(-1) == 0).all()
    assert torch.equal(y[0], dl.Chain().solve((zeros[0][0], zeros[1])))


def test_a_mask_says_which_labels_may_begin():
    """Labels O, B, I: an I needs a B or an I before it."""
    forbidden = torch.tensor([[False, False, True], [False, False, False], [False, False, False]])
    begin = torch.ones(3, 3, dtype=torch.bool)
    begin[0, 2] = False
    every = dl.Chain(forbidden=forbidden, mask=begin).enumerate(torch.zeros(3, 3)).argmax(-1)
    assert len(every) == 13  # the Fibonacci number F(7)
    assert not (every[:, 0] == 2).any()


@pytest.mark.parametrize("lengths", [None, torch.tensor(3)], ids=["whole", "short"])
def test_counting_does_not_enumerate(lengths):
    structure = dl.Chain(lengths)
    n = 40 if lengths is None else 3
    assert structure.count(torch.zeros(40, 10)) == 10**n
    free = dl.Chain(lengths, forbidden=torch.eye(10, dtype=torch.bool))
    assert free.count(torch.zeros(40, 10)) == 10 * 9 ** (n - 1)


def test_nothing_is_a_sequence_too():
    assert dl.Chain().solve(torch.zeros(4, 0, 3)).shape == (4, 0, 3)
    assert [tuple(part.shape) for part in dl.Chain().solve((torch.zeros(4, 0, 3), torch.zeros(3, 3)), parts=True)] == [
        (4, 0, 3),
        (4, 0, 3, 3),
    ]
    assert not dl.Chain(torch.tensor([0, 0])).solve(torch.ones(2, 4, 3)).any()
    assert len(dl.Chain(torch.tensor(0)).enumerate(torch.ones(4, 3))) == 1


UNARY = torch.zeros(2, 4, 3)


@pytest.mark.parametrize(
    ("make", "scores", "message"),
    [
        (lambda: dl.Chain(torch.tensor([1.0, 2.0])), UNARY, r"lengths is torch.float32, expected whole numbers"),
        (lambda: dl.Chain(torch.tensor([1, -2])), UNARY, r"lengths has -2 for instance \(1,\), expected at least 0"),
        (lambda: dl.Chain(torch.tensor([1, 5])), UNARY, r"lengths has 5 for instance \(1,\), beyond the 4 positions"),
        (lambda: dl.Chain(torch.tensor([1, 2, 3])), UNARY, r"lengths has batch axes \(3,\), which do not broadcast"),
        (lambda: dl.Chain(forbidden=torch.zeros(3, 3)), UNARY, "forbidden is torch.float32, expected a boolean tensor"),
        (lambda: dl.Chain(forbidden=torch.ones(4, 4) > 0), UNARY, r"forbidden has shape \(1, 4, 4\)"),
        (lambda: dl.Chain(forbidden=torch.ones(3, 3) > 0), UNARY, r"leave instance \(0,\) without labels; allow more"),
        (lambda: dl.Chain(mask=torch.ones(4, 4) > 0), UNARY, r"mask has shape \(4, 4\)"),
        (lambda: dl.Chain(mask=torch.ones(4, 3) < 0), UNARY, r"leave instance \(0,\) without labels"),
        (dl.Chain, (UNARY, torch.zeros(4, 4)), r"transitions have shape \(4, 4\), .* need \(\.\.\., 3, 3, 3\)"),
        (dl.Chain, (UNARY, torch.zeros(2, 3, 3)), r"transitions have shape \(2, 3, 3\)"),
        (dl.Chain, (UNARY, torch.zeros(3)), r"transitions have shape \(3,\)"),
        (dl.Chain, (UNARY, torch.zeros(3, 3), torch.zeros(4)), r"start have shape \(4,\)"),
        (dl.Chain, (UNARY, torch.zeros(3, 3), torch.zeros(3), torch.zeros(5, 3)), r"batch axes \(5,\)"),
        (dl.Chain, (UNARY, *[torch.zeros(3, 3)] * 4), "scores have 5 parts, but Chain takes at most 4: unary"),
        (dl.Chain, torch.zeros(3), "Chain needs at least 2 axes"),
        (dl.Chain, torch.zeros(2, 4, 0), "scores have no labels to choose from"),
        (dl.Chain, (UNARY, torch.full((3, 3), -torch.inf)), "scores hold 9 NaN or infinite entries"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_the_boundary(make, scores, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make().solve(scores)


@pytest.mark.parametrize("target", [torch.zeros(4, 3), torch.ones(4, 3), torch.full((4, 3), 1 / 3)])
def test_a_target_that_is_not_a_label_sequence_is_refused(target):
    with pytest.raises(ValueError, match=r"target is not a label sequence at position 0 of instance \(0,\)"):
        dl.Chain().complete(target, UNARY)
