"""``DirectLoss(structure)`` with nothing else: scale and epsilon find themselves."""

import copy
import io
import math

import criterion_processes
import pytest
import torch
from tables import PARTS, every_structure
from torch.func import grad, vmap

import directloss as dl
from directloss.losses.shares import CLOSED, Seen, Shares


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def train(criterion, structure, a=1.0, b=1.0, c=0.0, steps=40, entries=(6,), seed=0):
    """Steps of plain gradient descent on scores a * w, whose own step is in their units; return w and the state."""
    w, cost = drawn(8, *entries, seed=seed), drawn(8, *entries, seed=seed + 1)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        leaf = (a * w).requires_grad_()
        criterion(leaf, b * cost + c, structure=structure, generator=generator).backward()
        w = w - 0.5 * leaf.grad
    return w, criterion.state()


@pytest.mark.parametrize(
    ("structure", "entries"),
    [
        (dl.Choice(), (6,)),
        (dl.Subset(2), (6,)),
        (dl.Matching(), (3, 3)),
        (dl.SpanningTree(), (6,)),
        (dl.Chain(), (3, 3)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("b", [0.001, 30.0])
def test_updates_are_the_same_in_any_unit_of_the_cost(structure, entries, b):
    plain = train(dl.DirectLoss(structure), structure, entries=entries)
    other = train(dl.DirectLoss(structure), structure, b=b, c=5 * b, entries=entries)
    torch.testing.assert_close(plain[0], other[0])
    assert plain[1]["scale"] == pytest.approx(other[1]["scale"])
    assert plain[1]["epsilon"] == pytest.approx([b * end for end in other[1]["epsilon"]])


@pytest.mark.parametrize("a", [0.01, 100.0])
def test_updates_are_the_same_in_any_unit_of_the_scores(a):
    # Scores a * w, of which w takes the same steps: what a net and its optimiser with a rate in that unit do.
    plain = train(dl.DirectLoss(dl.Matching()), dl.Matching(), entries=(3, 3))
    other = train(dl.DirectLoss(dl.Matching()), dl.Matching(), a=a, entries=(3, 3))
    torch.testing.assert_close(plain[0], other[0])
    assert a * plain[1]["scale"] == pytest.approx(other[1]["scale"])


@every_structure
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_structure_trains_without_settings(row, dtype):
    criterion = dl.DirectLoss(row.structure)
    scores, cost = row.scores(6, dtype=dtype).requires_grad_(), row.scores(6, seed=1, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        loss = criterion(scores, cost, generator=generator)
        loss.backward()
    assert loss.dtype == scores.grad.dtype == dtype
    assert all(math.isfinite(end) for end in criterion.state()["epsilon"])
    assert criterion.state()["scale"] > 0
    assert criterion.found.started
    assert not list(criterion.parameters())


@pytest.mark.parametrize("row", PARTS, ids=lambda row: row.name)
def test_scores_in_parts_train_without_settings(row):
    criterion = dl.DirectLoss(row.structure)
    scores = tuple(part.requires_grad_() for part in row.scores(4))
    for _ in range(3):
        criterion(scores, row.cost(4), generator=torch.Generator().manual_seed(0)).backward()
    assert all(torch.isfinite(part.grad).all() for part in scores)
    assert criterion.found.started


def test_paths_with_cycles_take_the_better_side_without_noise():
    criterion = dl.DirectLoss(dl.GridPath(moves=8))
    scores, cost = -drawn(5, 4, 4).exp(), drawn(5, 4, 4, seed=1).exp()
    scores.requires_grad_()
    for _ in range(5):
        criterion(scores, cost).backward()
    assert scores.grad.abs().sum() > 0
    assert criterion.state()["scale"] == 0
    assert criterion.state()["epsilon"] < 0


def test_the_state_is_saved_and_training_goes_on_exactly():
    structure, scores, cost = dl.Subset(2), drawn(4, 6).requires_grad_(), drawn(4, 6, seed=1)
    criterion = dl.DirectLoss(structure)
    for seed in range(5):
        criterion(scores, cost, generator=torch.Generator().manual_seed(seed))
    file = io.BytesIO()
    torch.save(criterion.state_dict(), file)
    file.seek(0)
    other = dl.DirectLoss(structure)
    other.load_state_dict(torch.load(file, weights_only=True))
    for one in (criterion, other):
        for seed in range(5, 10):
            one(scores, cost, generator=torch.Generator().manual_seed(seed))
    assert criterion.state() == other.state()
    assert repr(criterion) == repr(other)
    assert "scale=" in repr(criterion)
    assert "epsilon=" in repr(criterion)


def test_only_a_training_step_with_gradients_changes_the_state():
    criterion, cost = dl.DirectLoss(dl.Choice()), drawn(4, 6, seed=1)
    scores = drawn(4, 6).requires_grad_()
    criterion(scores.detach(), cost)
    assert not criterion.found.started
    criterion(scores, cost)
    before = criterion.found.value.clone()
    with torch.no_grad():
        criterion(scores, cost)
    criterion(scores.detach(), cost)
    vmap(grad(criterion), randomness="different")(scores.detach(), cost)
    criterion.eval()(scores, cost).backward()
    assert torch.equal(criterion.found.value, before)
    criterion.train()(scores, cost)
    assert not torch.equal(criterion.found.value, before)
    assert criterion.half().found.value.dtype == torch.float64


def test_a_batch_that_says_nothing_leaves_the_state_finite():
    criterion = dl.DirectLoss(dl.Choice())
    generator = torch.Generator().manual_seed(0)
    for scores, cost in (
        (torch.zeros(4, 3), torch.zeros(4, 3)),  # nothing to tell apart
        (torch.zeros(0, 3), torch.zeros(0, 3)),  # nobody
        (torch.zeros(4, 3), torch.eye(3)[[0, 1, 2, 0]]),  # a net that starts at zero
    ):
        criterion(scores.requires_grad_(), cost, generator=generator).backward()
        assert not criterion.found.started
    for scores in (torch.eye(3), torch.zeros(0, 3), 1e3 * (1 - torch.eye(3))):  # the last has no loss left to lower
        for _ in range(300):
            criterion(scores.clone().requires_grad_(), torch.eye(3)[: len(scores)], generator=generator).backward()
        assert torch.isfinite(criterion.found.value).all()
        assert criterion.state()["scale"] > 1e-6


def test_settings_that_are_given_stay():
    scores, cost = drawn(4, 6).requires_grad_(), drawn(4, 6, seed=1)
    fixed = dl.DirectLoss(dl.Choice(), scale=0.5, samples=3)
    one = dl.DirectLoss(dl.Choice(), sides="one")
    both = dl.DirectLoss(dl.Choice(), sides="both")
    for criterion in (fixed, one, both):
        for _ in range(5):
            _, y = criterion(scores, cost, return_structure=True)
    assert fixed.state()["scale"] == 0.5
    assert y.shape == (2, 4, 6)
    assert fixed(scores, cost, return_structure=True)[1].shape == (3, 4, 6)
    assert one.state()["epsilon"] < 0
    assert both.state()["epsilon"][0] == -both.state()["epsilon"][1]
    given = dl.DirectLoss(dl.Choice(), epsilon=-2.0)
    assert given.state()["epsilon"] == -2.0
    assert given.state()["scale"] == 0.0
    torch.testing.assert_close(given(scores, cost), dl.direct_loss(scores, cost, dl.Choice(), epsilon=-2.0))
    with pytest.raises(ValueError, match="sides is 'two'"):
        dl.DirectLoss(dl.Choice(), sides="two")


def test_a_scale_of_ones_own_learns():
    sigma = torch.tensor([0.5, 1.0, 2.0, 0.1], requires_grad=True)
    criterion = dl.DirectLoss(dl.Choice(), samples=20)
    criterion(drawn(4, 6).float().requires_grad_(), drawn(4, 6, seed=1).float(), scale=sigma).backward()
    assert (sigma.grad != 0).any()
    assert criterion.found.started


def test_the_gradient_is_the_difference_of_the_two_sides():
    criterion, cost = dl.DirectLoss(dl.Matching(), reduction="sum"), drawn(5, 3, 3, seed=1)
    scores = drawn(5, 3, 3).requires_grad_()
    for seed in range(20):
        scores.grad = None
        settings = criterion.state() if seed else None
        criterion(scores, cost, generator=torch.Generator().manual_seed(seed)).backward()
    noise = dl.Normal().sample((2, 5, 3, 3), generator=torch.Generator().manual_seed(19), dtype=torch.float64)
    theta = scores.detach() + settings["scale"] * noise
    behind, ahead = (dl.Matching().solve(theta + end * cost) for end in settings["epsilon"])
    torch.testing.assert_close(scores.grad, (ahead - behind).mean(0))


@pytest.mark.parametrize("linear", [True, False])
def test_a_function_as_cost_needs_no_settings_either(linear):
    cost, target = drawn(6, 5, seed=1), torch.eye(5, dtype=torch.float64)[[0, 1, 2, 3, 4, 0]]
    criterion = dl.DirectLoss(dl.Subset(2))
    scores = drawn(6, 5).requires_grad_()

    def loss(y):
        return (cost * y).sum(-1) if linear else 1 - (y * target).sum(-1).square()

    for _ in range(10):
        criterion(scores, loss, generator=torch.Generator().manual_seed(0)).backward()
    assert criterion.found.started
    assert torch.isfinite(criterion.found.value).all()


def test_a_loss_with_a_maximiser_of_its_own_needs_no_settings():
    target = (drawn(6, 5, seed=1) > 0).double()
    f1 = dl.costs.F1(target)
    criterion = dl.DirectLoss(dl.Bits(), augmented=f1.augmented)
    scores = drawn(6, 5).requires_grad_()
    before = f1(dl.Bits().solve(scores)).mean()
    optimizer = torch.optim.SGD([scores], lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        criterion(scores, f1, generator=torch.Generator().manual_seed(0)).backward()
        optimizer.step()
    assert f1(dl.Bits().solve(scores)).mean() < before


def seen(**changes):
    balanced = {"gap": 1.0, "closed": CLOSED, "opened": CLOSED}
    return Seen(**{**balanced, "given_up": 0.2, "at_stake": 1.0, "missed": 0.8, "spread": 4.0, **changes})


@pytest.mark.parametrize(
    ("change", "scale", "minus", "plus"),
    [
        ({}, 0, 0, 0),
        ({"closed": 0.1, "opened": 0.1}, 0, 1, 0),
        ({"closed": 1.0, "opened": 1.0}, 0, -1, 0),
        ({"opened": 0.5}, 0, 0, 1),
        ({"opened": 2.0}, 0, 0, -1),
        ({"gap": 3.9, "closed": 3.51, "opened": 0.09}, 0, 0, 0),  # there is no more to open
        ({"gap": 3.9, "closed": 3.51, "opened": 0.08}, 0, 0, 1),
        ({"missed": 0.9}, 1, 0, 0),
        ({"given_up": 0.4}, -1, 0, 0),
        ({"missed": 4.0, "given_up": 0.25}, 0, 0, 0),  # the scores know nothing yet
        ({"missed": 4.0, "given_up": 0.26}, -1, 0, 0),
        ({"gap": 0.0, "closed": 0.0}, 0, 0, 0),
    ],
)
def test_each_setting_follows_its_own_share(change, scale, minus, plus):
    shares = Shares()
    shares.start(1.0, 1.0)
    before = shares.value.clone()
    for _ in range(3):
        shares.observe(seen(**change))
    moved = (shares.value - before)[:3]
    assert torch.equal(
        torch.sign(moved * (moved.abs() > 1e-9)), torch.tensor([scale, minus, plus], dtype=torch.float64)
    )


@pytest.mark.parametrize("sides", [None, "one", "both"])
def test_epsilons_settle_where_the_better_side_closes_its_share(sides):
    generator = torch.Generator().manual_seed(0)
    scores, cost = drawn(64, 12).requires_grad_(), drawn(64, 12, seed=1)
    criterion = dl.DirectLoss(dl.Subset(3), sides=sides, scale=1.0, samples=20)
    for _ in range(200):
        criterion(scores, cost, generator=generator)
    epsilon = criterion.state()["epsilon"]
    minus = epsilon if sides == "one" else epsilon[0]
    if sides == "both":
        assert epsilon[1] == -minus
    theta = scores.detach() + dl.Gumbel().sample((200, 64, 12), generator=generator)
    y, better = (dl.Subset(3).solve(theta + step * cost) for step in (0.0, minus))
    best = dl.Subset(3).solve(-cost)
    gap, closed = ((y - best) * cost).sum(-1).mean(), ((y - better) * cost).sum(-1).mean()
    assert abs(closed / gap - CLOSED) < 0.03


@pytest.mark.parametrize("sides", [None, "one", "both"])
@pytest.mark.parametrize("change", [{}, {"closed": 0.0, "opened": 0.0, "given_up": 0.0}, {"given_up": 1.0}])
def test_settings_stay_finite_however_long_a_share_is_out_of_reach(sides, change):
    criterion = dl.DirectLoss(dl.Choice(), sides=sides)
    criterion.found.start(1.0, 1.0)
    for _ in range(5000):
        criterion.found.observe(seen(**change), moves_plus=sides is None)
    assert all(0 < abs(torch.tensor(value, dtype=torch.float32)) < torch.inf for value in criterion.found.settings())


def test_noise_falls_at_any_time_but_rises_at_first_only():
    shares = Shares()
    shares.start(1.0, 1.0)
    for _ in range(100):
        shares.observe(seen(missed=0.8, given_up=0.01))
    early = shares.settings()[0]
    for _ in range(3000):
        shares.observe(seen(missed=0.8, given_up=0.01))
    late = shares.settings()[0]
    assert 30 < early < late < 60
    for _ in range(100):
        shares.observe(seen(missed=0.08, given_up=0.4))
    assert shares.settings()[0] < late / 1000


def test_one_side_moves_nothing_of_the_other():
    criterion = dl.DirectLoss(dl.Choice(), sides="one")
    scores, cost = drawn(4, 6).requires_grad_(), drawn(4, 6, seed=1)
    criterion(scores, cost)
    before = criterion.found.value[2].item()
    for _ in range(20):
        criterion(scores, cost)
    assert criterion.found.value[2].item() == before


def test_copies_of_a_criterion_go_their_own_ways():
    criterion = dl.DirectLoss(dl.Choice())
    scores, cost = drawn(4, 6).requires_grad_(), drawn(4, 6, seed=1)
    criterion(scores, cost)
    other = copy.deepcopy(criterion)
    other(scores, cost)
    assert not torch.equal(criterion.found.value, other.found.value)


@pytest.mark.slow
def test_processes_find_together_what_one_finds_alone(tmp_path):
    splits = [(slice(0, 5), slice(5, 8)), (slice(0, 8), slice(0, 0))]  # in the second, one process has nothing
    torch.multiprocessing.spawn(
        criterion_processes.run, (splits, str(tmp_path / "meeting"), str(tmp_path)), nprocs=2, daemon=True
    )
    alone = criterion_processes.steps(slice(0, 8))
    for one, other in zip(*(torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone)
