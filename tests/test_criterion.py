"""``DirectLoss`` and ``GrowingEpsilon``: the module around the rule, and the paper's rule for epsilon."""

import io

import pytest
import torch
from tables import every_structure

import directloss as dl

# Three labels; the first is right for every instance. Margins of 1, 3 and 30 below the best label.
COST = torch.tensor([0.0, 1.0, 1.0])
SCORES = torch.tensor([[0.0, 1.0, -9.0], [0.0, 3.0, -9.0], [0.0, 30.0, -9.0]], requires_grad=True)


def criterion(epsilon, **options):
    return dl.DirectLoss(dl.Choice(), epsilon=epsilon, **options)


@every_structure
@pytest.mark.parametrize("sides", ["one", "both"])
def test_the_criterion_is_the_function(row, sides):
    scores, cost = row.scores(5), row.scores(5, seed=1)
    module = dl.DirectLoss(row.structure, epsilon=-0.7, sides=sides, noise=dl.Logistic(), samples=3)
    results = []
    for call in (
        lambda leaf, **options: module(leaf, cost, **options),
        lambda leaf, **options: dl.direct_loss(
            leaf, cost, row.structure, epsilon=-0.7, sides=sides, noise=dl.Logistic(), samples=3, **options
        ),
    ):
        leaf = scores.clone().requires_grad_()
        generator = torch.Generator().manual_seed(0)
        loss, y = call(leaf, scale=0.5, generator=generator, return_structure=True)
        loss.sum().backward()
        results.append((loss.detach(), y, leaf.grad))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize(("epsilon", "share"), [(-0.5, 1.0), (-2.0, 2 / 3), (-5.0, 1 / 3), (-50.0, 0.0)])
def test_zero_gradient_fraction_counts_the_instances_without_a_gradient(epsilon, share):
    module = criterion(epsilon)
    scores = SCORES.detach().clone().requires_grad_()
    module(scores, COST).sum().backward()
    assert module.zero_gradient_fraction == pytest.approx(share)
    assert (scores.grad == 0).all(-1).double().mean().item() == pytest.approx(share)


def test_zero_gradient_fraction_counts_an_instance_if_any_of_its_samples_differs(generator):
    module = criterion(-1.0, samples=200)
    scores = torch.zeros(10, 3, requires_grad=True)
    module(scores, COST, scale=1.0, generator=generator)
    assert module.zero_gradient_fraction == 0.0


@pytest.mark.parametrize("start", [-12.0, 12.0])
def test_epsilon_grows_by_its_factor_and_keeps_its_sign(start):
    epsilon = dl.GrowingEpsilon(start, growth=1.5)
    epsilon.update(difference=False, positive_loss=True)
    assert float(epsilon) == start * 1.5
    epsilon.update(difference=False, positive_loss=True)
    assert float(epsilon) == start * 1.5**2


@pytest.mark.parametrize(("difference", "positive_loss"), [(True, True), (True, False), (False, False)])
def test_epsilon_stays_while_there_is_a_difference_or_nothing_to_gain(difference, positive_loss):
    epsilon = dl.GrowingEpsilon(-12.0)
    epsilon.update(difference, positive_loss)
    assert float(epsilon) == -12.0


@pytest.mark.parametrize(("limit", "end"), [(20.0, 20.0), (-20.0, 20.0), (None, 1200.0)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_epsilon_stops_at_its_limit(limit, end, sign):
    epsilon = dl.GrowingEpsilon(sign * 12.0, limit=limit)
    for _ in range(100):
        epsilon.update(difference=False, positive_loss=True)
    assert float(epsilon) == sign * end


@pytest.mark.parametrize(("reset", "end"), [(True, -12.0), (False, -12.0 * 1.1**3)])
def test_reset_returns_to_the_start_at_the_first_difference(reset, end):
    epsilon = dl.GrowingEpsilon(-12.0, reset=reset)
    for _ in range(3):
        epsilon.update(difference=False, positive_loss=True)
    epsilon.update(difference=True, positive_loss=True)
    assert float(epsilon) == pytest.approx(end)


def test_the_criterion_grows_epsilon_until_some_instance_gives_a_gradient():
    module = criterion(dl.GrowingEpsilon(-0.5, growth=1.5))
    values = []
    for _ in range(5):
        module(SCORES, COST)
        values.append(float(module.epsilon))
    # A margin of 1 needs abs(epsilon) > 1: .5 and .75 fail and grow, 1.125 gives a difference and stays.
    assert values == [-0.75, -1.125, -1.125, -1.125, -1.125]


@pytest.mark.parametrize(
    "cost",
    [COST, COST - 5, COST + 5, COST.long()],
    ids=["zero", "negative", "shifted", "integer"],
)
def test_a_positive_loss_is_one_above_the_best_possible_whatever_its_constant(cost):
    wrong, right = criterion(dl.GrowingEpsilon(-0.5)), criterion(dl.GrowingEpsilon(-0.5))
    wrong(SCORES, cost)
    assert float(wrong.epsilon) == pytest.approx(-0.55)
    right(torch.tensor([[9.0, 1.0, 1.0]], requires_grad=True), cost)
    assert float(right.epsilon) == -0.5


def test_a_fixed_epsilon_stays():
    module = criterion(-0.5)
    module(SCORES, COST)
    assert module.epsilon == -0.5
    assert not list(module.buffers())


def test_epsilon_survives_in_the_state_dict():
    module = criterion(dl.GrowingEpsilon(-0.5))
    for _ in range(4):
        module(SCORES, COST)
    assert float(module.epsilon) == pytest.approx(-0.5 * 1.1**4)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = criterion(dl.GrowingEpsilon(-0.5))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert float(other.epsilon) == float(module.epsilon)
    other(SCORES, COST)
    module(SCORES, COST)
    assert float(other.epsilon) == float(module.epsilon)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0.0}, "epsilon is 0.0; expected a finite number other than 0"),
        ({"start": float("nan")}, "epsilon is nan"),
        ({"start": 1.0, "growth": 1.0}, "growth is 1.0, expected a factor above 1"),
        ({"start": 1.0, "growth": float("nan")}, "growth is nan"),
        ({"start": 2.0, "limit": 1.0}, "limit is 1.0, below the starting magnitude 2.0"),
        ({"start": 2.0, "limit": float("nan")}, "limit is nan"),
    ],
)
def test_options_of_adaptive_epsilon_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        dl.GrowingEpsilon(**options)


def test_a_criterion_refuses_epsilon_zero_when_it_is_made():
    with pytest.raises(ValueError, match="epsilon is 0"):
        criterion(0)


def test_a_criterion_shows_its_settings():
    shown = repr(criterion(dl.GrowingEpsilon(-0.5, reset=True), sides="both", samples=3))
    assert all(part in shown for part in ("Choice()", "sides='both'", "samples=3", "GrowingEpsilon(-0.5", "reset=True"))
    assert "epsilon=-2" in repr(criterion(-2.0))
