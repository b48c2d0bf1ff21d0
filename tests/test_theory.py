"""The claims of the paper (shared/paper/NOTES.md, "Theory worth checking in code"), against exact oracles.

Tolerances are five standard errors of the estimates compared; biases are computed, not guessed.
"""

import math
from functools import cache

import pytest
import torch
from oracles import Estimate, ScoreFunction, assert_agrees, closed_estimate, closed_expectations, closed_gradient
from tables import STRUCTURES, Row, direct_loss, every_structure, named
from torch import Tensor

import directloss as dl

SIGMA = 0.8
GROUPS, SAMPLES = 400, 200  # the estimator's standard error comes from groups of samples
closed_form = named("choice", "subset")
epsilons = pytest.mark.parametrize("epsilon", [0.2, -0.2])
both_sides = pytest.mark.parametrize("sides", ["one", "both"])


def problem(row: Row) -> tuple[Tensor, Tensor]:
    """Scores and costs of the same order, so that no structure is hopeless."""
    return row.scores(seed=11), row.scores(seed=12)


def estimated_gradient(row: Row, epsilon: float, sides: str, groups: int = GROUPS) -> Estimate:
    """``direct_loss`` through autograd, to the entries and to sigma: (E + 1,)."""
    mu, cost = problem(row)
    scores = mu.expand(groups, *row.entries).clone().requires_grad_()
    scale = torch.full((groups,), SIGMA, dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(1)
    loss = direct_loss(
        scores, cost, row.structure, epsilon=epsilon, sides=sides, scale=scale, samples=SAMPLES, generator=generator
    )
    loss.sum().backward()
    return Estimate.of(torch.cat([scores.grad.flatten(1), scale.grad[:, None]], 1))


@cache
def score_function(name: str) -> ScoreFunction:
    row = next(row for row in STRUCTURES if row.name == name)
    mu, cost = problem(row)
    return ScoreFunction.draw(row, mu, SIGMA, cost, draws=200_000, seed=2)


@closed_form
def test_the_oracles_agree_with_each_other_and_with_enumeration(row):
    mu, cost = problem(row)
    sigma = torch.tensor(SIGMA, dtype=torch.float64)
    draws = score_function(row.name)
    y, noise = (tensor.detach() for tensor in closed_expectations(row, mu, sigma))
    assert_agrees(Estimate.of(draws.y), y)
    assert_agrees(Estimate.of((draws.y * draws.gamma).sum(1)), noise)
    assert_agrees(draws.gradient(), closed_gradient(row, mu, sigma, cost))
    for sides in ("one", "both"):
        bias = closed_estimate(row, mu, sigma, cost, 0.2, sides) - closed_gradient(row, mu, sigma, cost)
        assert_agrees(draws.bias(0.2, sides), bias)


@closed_form
@epsilons
@both_sides
def test_corollaries_1_and_2_in_closed_form(row, epsilon, sides):
    mu, cost = problem(row)
    sigma = torch.tensor(SIGMA, dtype=torch.float64)
    estimate = estimated_gradient(row, epsilon, sides)
    assert_agrees(estimate, closed_estimate(row, mu, sigma, cost, epsilon, sides))
    # The limit itself: the same in the limit of the closed form, and near enough to be told from zero here.
    exact = closed_gradient(row, mu, sigma, cost)
    torch.testing.assert_close(closed_estimate(row, mu, sigma, cost, 1e-5, "both"), exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        closed_estimate(row, mu, sigma, cost, math.copysign(1e-6, epsilon), "one"), exact, rtol=1e-4, atol=1e-4
    )
    assert (exact.abs() > 10 * estimate.error).any()


@named("matching-3x3", "matching-4x4", "matching-2x4", "matching-masked", "custom-any-size")
@epsilons
@both_sides
def test_corollaries_1_and_2_for_any_structure(row, epsilon, sides):
    draws, estimate = score_function(row.name), estimated_gradient(row, epsilon, sides)
    exact = draws.gradient()
    assert_agrees(estimate, exact + draws.bias(epsilon, sides))
    assert (exact.mean.abs() > 10 * estimate.error).any()


@closed_form
def test_the_bias_is_of_first_order_on_one_side_and_of_second_on_both(row):
    mu, cost = problem(row)
    sigma = torch.tensor(SIGMA, dtype=torch.float64)
    exact = closed_gradient(row, mu, sigma, cost)

    def bias(epsilon, sides):
        return closed_estimate(row, mu, sigma, cost, epsilon, sides) - exact

    # Halving epsilon halves the one and quarters the other; changing the sign turns the one over and keeps the other.
    for epsilon in (1e-3, -1e-3):
        for sides, order in (("one", 1), ("both", 2)):
            ratio = bias(epsilon, sides).norm() / bias(epsilon / 2, sides).norm()
            assert math.log2(ratio) == pytest.approx(order, abs=0.01)
    assert torch.cosine_similarity(bias(1e-3, "one"), bias(-1e-3, "one"), dim=0) < -0.999
    assert torch.cosine_similarity(bias(1e-3, "both"), bias(-1e-3, "both"), dim=0) > 0.999
    # And the estimator shows it: at epsilon 1 the one-sided means differ from each other and from the exact gradient.
    plus, minus, both = (
        estimated_gradient(row, *rule, groups=200) for rule in ((1.0, "one"), (-1.0, "one"), (1.0, "both"))
    )
    distances = [(estimate.mean - exact).norm() for estimate in (plus, minus, both)]
    assert min(distances[:2]) - distances[2] > 5 * max(estimate.error.norm() for estimate in (plus, minus, both))
    assert (plus.mean - minus.mean).norm() > 5 * (plus + minus).error.norm()


def test_far_towards_better_structures_is_the_gradient_of_their_likelihood():
    mu, wrong = torch.tensor([0.5, -0.3, 0.2, 1.0], dtype=torch.float64), torch.tensor([1.0, 0.0, 0.0, 1.0]).double()
    epsilon = -1e3
    scores = mu.expand(GROUPS, 4).clone().requires_grad_()
    generator = torch.Generator().manual_seed(0)
    direct_loss(
        scores, wrong, dl.Choice(), epsilon=epsilon, scale=SIGMA, samples=SAMPLES, generator=generator
    ).sum().backward()
    mu.requires_grad_()
    likelihood = torch.softmax(mu / SIGMA, 0) @ (1 - wrong)
    (exact,) = torch.autograd.grad(-SIGMA * likelihood.log(), mu)
    assert_agrees(Estimate.of(scores.grad * -epsilon), exact)


@every_structure
def test_theorem_2_the_maximiser_is_unique_with_noise(row):
    mu, every = problem(row)[0].round(), row.every.flatten(1)
    gamma = dl.Gumbel().sample((100_000, mu.numel()), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best, second = ((mu.flatten() + SIGMA * gamma) @ every.mT).topk(2).values.unbind(1)
    assert (best - second).min() > 0


@every_structure
def test_integer_scores_tie_without_noise(row):
    scores = torch.randint(2, (1000, *row.entries), generator=torch.Generator().manual_seed(0)).double()
    best, second = (scores.flatten(1) @ row.every.flatten(1).mT).topk(2).values.unbind(1)
    assert (best == second).any()


@closed_form
def test_without_noise_the_estimate_at_zero_scores_says_nothing(row):
    zero = torch.zeros(row.entries, dtype=torch.float64)
    sigma = torch.tensor(1.0, dtype=torch.float64)
    chosen = row.structure.solve(zero)
    other = next(y for y in row.every if not torch.equal(y, chosen))
    for target in (chosen, other):
        cost = dl.costs.hamming(target)
        exact = closed_gradient(row, zero, sigma, cost)

        def gradient(epsilon, samples=1, cost=cost, **options):
            scores = zero.clone().requires_grad_()
            direct_loss(scores, cost, row.structure, epsilon=epsilon, samples=samples, **options).backward()
            return scores.grad

        # The tie-break decides: nothing at all where it is right by chance, otherwise a step that grows as 1 / epsilon.
        plain = [gradient(epsilon) for epsilon in (-1e-1, -1e-3, -1e-6)]
        for epsilon, estimate in zip((-1e-1, -1e-3, -1e-6), plain, strict=True):
            torch.testing.assert_close(estimate, (target - chosen) / epsilon)
        # With noise it is the gradient of the expected loss, for one target as for the other.
        generator = torch.Generator().manual_seed(0)
        noisy = Estimate.of(torch.stack([gradient(-0.1, 2000, scale=1.0, generator=generator) for _ in range(100)]))
        assert_agrees(noisy, closed_estimate(row, zero, sigma, cost, -0.1, "one")[:-1])
        assert (exact[:-1].abs() > 10 * noisy.error).all()
