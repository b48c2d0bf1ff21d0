"""Losses whose gradient estimates that of the expected task loss, against ``exact``.

Four standard errors, and a standard error of at most 2 % of the gradient's length.
"""

import pytest
import torch
from oracles import Estimate
from truth import SIGMA, TRUTH, as_scores, assert_within, drawn, every_truth

import directloss as dl

NOISES = {"gumbel": dl.Gumbel(), "normal": dl.Normal(variance=2.0), "logistic": dl.Logistic()}


def problem(row):
    return row.scores(seed=11), row.cost(seed=12)


def exact(row, parts, cost, **options):
    generator = torch.Generator().manual_seed(0)
    return dl.exact(as_scores(parts), cost, row.structure, SIGMA, points=1 << 11, generator=generator, **options)


def exact_gradient(row, parts, cost, **options):
    """To every part and to the scale, with its errors."""
    found = exact(row, parts, cost, **options)
    every = (found.to_scores, *found.to_factors, found.to_scale)
    return torch.cat([e.value.flatten() for e in every]), torch.cat([e.error.flatten() for e in every]), found.loss


def assert_precise(estimate: Estimate, true: torch.Tensor) -> None:
    assert estimate.error.norm() <= 0.02 * true.norm(), f"{estimate.error.norm() / true.norm():.1%} of the length"


@every_truth
@pytest.mark.parametrize("name", NOISES)
def test_reinforce_is_unbiased_for_every_part_and_the_scale(row, name):
    (parts, cost), noise = problem(row), NOISES[name]
    true, error, loss = exact_gradient(row, parts, cost, noise=noise)
    generator = torch.Generator().manual_seed(1)
    value, found = drawn(dl.reinforce, row, parts, cost, 4000, samples=80, noise=noise, generator=generator)
    estimate = Estimate.of(found)
    assert_within(Estimate.of(value[:, None]), loss.value, loss.error)
    assert_within(estimate, true, error)
    assert_precise(estimate, true)
    # What multiplies scores and scale alike changes no decision.
    point = torch.cat([part.flatten() for part in (*parts, torch.tensor([SIGMA]))]).double()
    gauge = Estimate.of(found @ point[:, None])
    assert_within(gauge, torch.zeros(1), torch.zeros(1))
    assert gauge.error < 0.02 * true.norm() * point.norm()


@pytest.mark.parametrize("row", [row for row in TRUTH if len(row.shapes) == 1], ids=lambda row: row.name)
def test_reinforce_takes_any_task_loss_as_a_black_box(row):
    (scores,), _ = problem(row)
    target = row.structure.solve(scores)

    def wrong(y):  # which has no gradient
        return (y != target).flatten(y.dim() - target.dim()).any(-1)

    true, error, loss = exact_gradient(row, (scores,), lambda y: wrong(y).double())
    generator = torch.Generator().manual_seed(2)
    value, found = drawn(dl.reinforce, row, (scores,), wrong, 4000, samples=80, generator=generator)
    assert_within(Estimate.of(value[:, None]), loss.value, loss.error)
    assert_within(Estimate.of(found), true, error)
    assert_precise(Estimate.of(found), true)


def test_a_linear_function_has_the_gradient_of_its_coefficients():
    row = TRUTH[2]
    (scores,), cost = problem(row)
    results = [
        drawn(dl.reinforce, row, (scores,), given, 50, samples=3, generator=torch.Generator().manual_seed(0))
        for given in (cost, lambda y: (y * cost).sum((-1, -2)))
    ]
    torch.testing.assert_close(*results)


def test_the_baseline_lowers_the_variance_and_one_sample_has_none():
    row = TRUTH[1]
    parts, cost = problem(row)
    true, error, _ = exact_gradient(row, parts, cost + 10)
    spreads = []
    for count, samples in ((40_000, 1), (20_000, 2), (10_000, 4)):
        generator = torch.Generator().manual_seed(3)
        estimate = Estimate.of(
            drawn(dl.reinforce, row, parts, cost + 10, count, samples=samples, generator=generator)[1]
        )
        assert_within(estimate, true, error)
        spreads.append(estimate.error.norm())
    # A constant in the loss is all that one sample sees.
    assert spreads[0] > 3 * spreads[1] > 3 * spreads[2]


def test_a_scale_for_each_entry_has_a_gradient_for_each():
    row = TRUTH[0]
    (scores,), cost = problem(row)
    count, samples = 20_000, 20
    leaf = scores.expand(count, 4).clone()
    scale = torch.tensor([0.5, 0.8, 1.0, 0.7]).double().expand(count, 4).clone().requires_grad_()
    options = {"samples": samples, "reduction": "sum"}
    dl.reinforce(leaf, cost, dl.Choice(), scale=scale, generator=torch.Generator().manual_seed(0), **options).backward()
    # With common noise the expected loss at two scales differs by little but their difference.
    draws = dl.Gumbel().sample((500_000, 4), generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def losses(scale):
        return cost[(scores + scale * draws).argmax(-1)]

    step = 0.05
    for entry in range(4):
        ends = [scale[0].detach() + sign * step * torch.eye(4).double()[entry] for sign in (1, -1)]
        difference = Estimate.of(((losses(ends[0]) - losses(ends[1])) / (2 * step))[:, None])
        ours = Estimate.of(scale.grad[:, entry : entry + 1])
        assert_within(ours, difference.mean, torch.hypot(difference.error, torch.tensor(step**2)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": 0.0, "samples": 1}, ValueError, "without noise nothing has a density"),
        ({"scale": torch.tensor([1.0, 0.0, 1.0])}, ValueError, "without noise nothing has a density"),
        ({"noise": torch.zeros(2, 3)}, TypeError, "needs its density"),
    ],
)
def test_reinforce_needs_a_density(options, error, message):
    with pytest.raises(error, match=message):
        dl.reinforce(torch.zeros(3), torch.zeros(3), dl.Choice(), **options)


def test_parts_without_noise_need_a_linear_loss():
    unary, transitions = torch.zeros(3, 2), torch.zeros(2, 2, requires_grad=True)
    with pytest.raises(ValueError, match="needs a linear task loss"):
        dl.reinforce((unary, transitions), lambda y: y[..., 0, 0], dl.Chain())
    scores = (unary.requires_grad_(), transitions.detach())
    dl.reinforce(scores, lambda y: y[..., 0, 0], dl.Chain(), samples=50).backward()
    assert unary.grad.any()


@every_truth
@pytest.mark.parametrize(("sides", "epsilon"), [("one", 0.5), ("one", -0.5), ("both", 0.5)])
def test_the_direct_loss_is_its_enumerated_difference_at_its_own_epsilon(row, sides, epsilon):
    """E[y] at shifted scores is exact, so that the mean of the difference is known for any epsilon."""
    parts, cost = problem(row)

    def expected(step):
        first, *factors = parts
        found = exact(row, (first + step * cost, *factors), cost)
        p, error = found.probabilities.value, found.probabilities.error
        means = [
            torch.einsum("n,n...->...", p, own).sum_to_size(f.shape) for f, own in zip(parts, row.every, strict=True)
        ]
        return torch.cat([mean.flatten() for mean in means]), error.max() * max(len(row.every[0]) ** 0.5, 2)

    ahead, behind = (expected(epsilon), expected(0.0 if sides == "one" else -epsilon))
    width = epsilon if sides == "one" else 2 * epsilon
    generator = torch.Generator().manual_seed(4)
    _, found = drawn(
        dl.direct_loss, row, parts, cost, 2000, samples=40, epsilon=epsilon, sides=sides, generator=generator
    )
    estimate = Estimate.of(found[:, :-1])
    assert_within(estimate, (ahead[0] - behind[0]) / width, torch.hypot(ahead[1], behind[1]) / abs(width))
    assert_precise(estimate, (ahead[0] - behind[0]) / width)


@every_truth
def test_the_direct_loss_tends_to_the_exact_gradient_as_epsilon_falls(row):
    """Its bias is of second order in epsilon: from two steps on the same noise, the limit."""
    parts, cost = problem(row)
    true, error, _ = exact_gradient(row, parts, cost)
    near, far = (
        drawn(
            dl.direct_loss,
            row,
            parts,
            cost,
            4000,
            samples=80,
            epsilon=epsilon,
            sides="both",
            generator=torch.Generator().manual_seed(5),
        )[1]
        for epsilon in (0.2, 0.4)
    )
    limit = (4 * near - far) / 3
    assert_within(Estimate.of(limit), true, error)
    assert_precise(Estimate.of(limit), true)
    point = torch.cat([part.flatten() for part in (*parts, torch.tensor([SIGMA]))]).double()
    gauge = Estimate.of(limit @ point)  # so precise that the bias of fourth order shows
    assert gauge.mean.abs() < 4 * gauge.error + 0.01 * true.norm() * point.norm()
