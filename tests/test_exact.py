"""Exact values are those of closed forms and of other estimators, within the errors that they state."""

import math
import re
from functools import cache

import pytest
import torch
from oracles import Estimate, ScoreFunction, assert_agrees, closed_expectations, closed_gradient
from scipy import stats
from tables import MASK, PARTS, STRUCTURES, Row, every_structure, named
from torch import Tensor

import directloss as dl
from directloss.experiments import distribution
from directloss.judging import exact as judging
from directloss.judging.exact import Exact, Expectation

SIGMA = 0.8
GUMBEL, NORMAL, LOGISTIC = dl.Gumbel(), dl.Normal(), dl.Logistic()
# For each noise: scipy's, and minus the logarithmic derivative of its density.
NOISES = {
    "gumbel": (GUMBEL, stats.gumbel_r(-0.5772156649015329), lambda gamma: 1 - torch.exp(-gamma - 0.5772156649015329)),
    "normal": (NORMAL, stats.norm(), lambda gamma: gamma),
    "logistic": (LOGISTIC, stats.logistic(), lambda gamma: torch.tanh(gamma / 2)),
    "normal, variance 3": (dl.Normal(variance=3.0), stats.norm(scale=math.sqrt(3)), lambda gamma: gamma / 3),
}
every_noise = pytest.mark.parametrize("name", NOISES)
SMALL = 256  # points a set: quick, and with errors large enough for what they state to be checked
RUNS = 16


def problem(row: Row) -> tuple[Tensor, Tensor]:
    """Scores and costs of the same order, so that no structure is hopeless."""
    return row.scores(seed=11), row.scores(seed=12)


def named_row(name: str) -> Row:
    return next(row for row in STRUCTURES if row.name == name)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cache
def computed(name: str, noise: dl.Noise = GUMBEL, points: int = 1 << 13) -> Exact:
    row = named_row(name)
    return dl.exact(*problem(row), row.structure, SIGMA, noise=noise, points=points, generator=seeded())


def estimate(expectation: Expectation) -> Estimate:
    """With the rounding of a sum added: some integrands are constant, and their error is nothing else."""
    return Estimate(expectation.value, torch.hypot(expectation.error, torch.tensor(1e-12, dtype=torch.float64)))


def gradient(exact: Exact) -> Estimate:
    """To the entries, then to sigma, (E + 1,)."""
    parts = [estimate(exact.to_scores), estimate(exact.to_scale)]
    return Estimate(*(torch.cat([getattr(part, name).reshape(-1) for part in parts]) for name in ("mean", "error")))


@named("choice", "subset", "custom")
def test_gradients_and_loss_are_those_of_the_closed_form(row):
    closed = row if row.name == "subset" else named_row("choice")
    mu, cost = problem(row)
    sigma = torch.tensor(SIGMA, dtype=torch.float64)
    exact = computed(row.name)
    assert_agrees(gradient(exact), closed_gradient(closed, mu, sigma, cost))
    assert_agrees(estimate(exact.loss), cost @ closed_expectations(closed, mu, sigma)[0].detach())
    # And the errors are small enough to mean something.
    assert exact.to_scores.error.max() < 1e-3 * exact.to_scores.value.norm()


@named("choice", "custom")
def test_the_probabilities_of_a_choice_are_a_softmax(row):
    assert_agrees(estimate(computed(row.name).probabilities), torch.softmax(problem(row)[0] / SIGMA, 0))


@named("subset")
def test_the_probabilities_of_a_pair_are_those_of_drawing_without_replacement(row):
    first = torch.softmax(problem(row)[0] / SIGMA, 0)
    pairs = row.every.nonzero()[:, 1].reshape(-1, 2)
    one, other = first[pairs].unbind(1)
    assert_agrees(estimate(computed(row.name).probabilities), one * other / (1 - one) + other * one / (1 - other))


@every_noise
@named("custom-any-size")
def test_entries_that_decide_alone_have_the_noises_own_distribution(row, name):
    noise, reference, _ = NOISES[name]
    mu, cost = problem(row)
    z = -mu / SIGMA  # an entry is taken where its noise is above
    exact = computed(row.name, noise, 1 << 11)
    above, density = (torch.from_numpy(function(z.numpy())) for function in (reference.sf, reference.pdf))
    assert_agrees(estimate(exact.loss), cost @ above)
    taken = row.every.flatten(1)
    assert_agrees(estimate(exact.probabilities), (taken * above + (1 - taken) * (1 - above)).prod(1))
    assert_agrees(gradient(exact), torch.cat([cost * density, (cost * density) @ z[:, None]]) / SIGMA)


def normal_difference(t: Tensor) -> Tensor:
    return torch.special.ndtr(t / math.sqrt(2))


def logistic_difference(t: Tensor) -> Tensor:
    return torch.exp(t) * (torch.expm1(t) - t) / torch.expm1(t) ** 2


@pytest.mark.parametrize(
    ("noise", "distribution"),
    [
        (GUMBEL, torch.sigmoid),
        (NORMAL, normal_difference),
        (dl.Normal(variance=3.0), lambda t: normal_difference(t / math.sqrt(3))),
        (LOGISTIC, logistic_difference),
    ],
    ids=["gumbel", "normal", "normal-3", "logistic"],
)
@pytest.mark.parametrize("sigma", [0.3, 2.0])
def test_one_of_two_has_the_distribution_of_the_noises_difference(noise, distribution, sigma):
    mu = torch.tensor([0.4, 1.1], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(sigma, dtype=torch.float64, requires_grad=True)
    share = distribution((mu[1] - mu[0]) / scale)
    loss = 2.0 * (1 - share) - 1.0 * share
    to_scores, to_scale = torch.autograd.grad(loss, (mu, scale))
    cost = torch.tensor([2.0, -1.0], dtype=torch.float64)
    exact = dl.exact(mu, cost, dl.Choice(), sigma, noise=noise, points=1 << 12, generator=seeded())
    assert_agrees(estimate(exact.probabilities), torch.stack([1 - share, share]).detach())
    assert_agrees(estimate(exact.loss), loss.detach())
    assert_agrees(gradient(exact), torch.cat([to_scores, to_scale[None]]))


def at_odds(y: Tensor) -> Tensor:
    """A task loss that is not linear in the structure."""
    y = y.flatten(1)
    return (y.sum(1) - 1).square() + y[:, 0] * y[:, -1]


@every_structure
def test_gradients_are_those_of_the_score_function(row):
    """Whose loss may be any: of a cost, and of a task loss that is a function."""
    mu, cost = problem(row)
    draws = ScoreFunction.draw(row, mu, SIGMA, cost, draws=100_000, seed=2)
    exact = computed(row.name, points=1 << 11)
    assert_agrees(draws.gradient(), gradient(exact))
    assert_agrees(Estimate.of(draws.y @ draws.cost), estimate(exact.loss))
    assert (exact.to_scores.value.abs() > 10 * draws.gradient().error[:-1].reshape(row.entries)).any()

    loss = at_odds(draws.y)
    slope = 1 - torch.exp(-(draws.gamma + 0.5772156649015329))
    to_sigma = (draws.gamma * slope - 1).sum(1, keepdim=True)
    found = dl.exact(mu, at_odds, row.structure, SIGMA, points=1 << 11, generator=seeded())
    expected = Estimate.of((loss - loss.mean())[:, None] * torch.cat([slope, to_sigma], 1) / SIGMA)
    # Where every structure has the same loss, both are nothing but rounding.
    rounding = torch.tensor(1e-12, dtype=torch.float64)
    assert_agrees(Estimate(expected.mean, torch.hypot(expected.error, rounding)), gradient(found))
    averaged = Estimate.of(loss)
    assert_agrees(Estimate(averaged.mean, torch.hypot(averaged.error, rounding)), estimate(found.loss))


@every_noise
@named("matching-3x3", "matching-2x4", "bits", "custom-reals")
def test_gradients_are_those_of_the_score_function_under_every_noise(row, name):
    noise, reference, slope = NOISES[name]
    mu, cost = problem(row)
    gamma = torch.from_numpy(reference.rvs((100_000, mu.numel()), random_state=3))
    every = row.every.flatten(1)
    chosen = ((mu.flatten() + SIGMA * gamma) @ every.mT).argmax(1)
    loss = (every @ cost.flatten())[chosen]
    loss = (loss - loss.mean())[:, None]
    to_sigma = (gamma * slope(gamma) - 1).sum(1, keepdim=True)
    draws = Estimate.of(loss * torch.cat([slope(gamma), to_sigma], 1) / SIGMA)
    exact = computed(row.name, noise, 1 << 11)
    assert_agrees(draws, gradient(exact))
    frequencies = torch.nn.functional.one_hot(chosen, len(every)).double()
    assert_agrees(Estimate.of(frequencies), estimate(exact.probabilities))


@pytest.mark.parametrize("name", ["gumbel", "normal, variance 3"])
@every_structure
def test_what_multiplies_scores_and_scale_alike_changes_nothing(row, name):
    """Euler: sigma d/dsigma = -<mu, d/dmu> for a function of mu / sigma."""
    exact, mu = computed(row.name, NOISES[name][0], points=64), problem(row)[0]
    total = (mu * exact.to_scores.value).sum() + SIGMA * exact.to_scale.value
    error = (mu * exact.to_scores.error).abs().sum() + SIGMA * exact.to_scale.error
    assert abs(total) < 5 * error + 1e-12


@every_structure
def test_a_linear_function_has_the_values_of_its_coefficients(row):
    mu, cost = problem(row)
    linear = computed(row.name, points=64)
    function = dl.exact(
        mu, lambda y: y.flatten(1) @ cost.flatten(), row.structure, SIGMA, points=64, generator=seeded()
    )
    assert torch.equal(linear.probabilities.value, function.probabilities.value)
    torch.testing.assert_close(gradient(function).mean, gradient(linear).mean, rtol=1e-12, atol=1e-12)


@every_structure
def test_probabilities_sum_to_1_and_give_the_loss(row):
    exact, cost = computed(row.name, points=1 << 11), problem(row)[1]
    assert len(exact.probabilities.value) == len(row.every)
    assert exact.probabilities.value.min() >= 0
    assert exact.probabilities.value.sum().item() == pytest.approx(1, abs=1e-12)
    losses = row.every.flatten(1) @ cost.flatten()
    assert exact.loss.value.item() == pytest.approx((exact.probabilities.value @ losses).item(), abs=1e-12)
    assert exact.to_scores.value.shape == exact.to_scores.error.shape == row.entries
    assert exact.loss.value.shape == exact.to_scale.value.shape == ()


@named("subset", "matching-masked")
def test_stated_errors_are_those_of_independent_runs(row):
    """Squared distances to the truth, in stated errors: 15 / 13 on average, for the spread of 16 sets."""
    mu, cost = problem(row)
    closed = isinstance(row.structure, dl.Choice | dl.Subset)
    truth = gradient(computed(row.name, points=1 << 15))
    if closed:
        truth = Estimate(closed_gradient(row, mu, torch.tensor(SIGMA, dtype=torch.float64), cost), truth.error * 0)
    runs = [dl.exact(mu, cost, row.structure, SIGMA, points=SMALL, generator=seeded(seed)) for seed in range(RUNS)]
    found = [gradient(run) for run in runs]
    varies = found[0].error > 1e-10  # a forbidden entry's gradient is 0 without an error
    away = torch.stack([(one.mean - truth.mean) / torch.hypot(one.error, truth.error) for one in found])
    assert 0.4 < away[:, varies].square().mean() < 2.5
    loss = computed(row.name, points=1 << 15).loss
    away = torch.stack([(run.loss.value - loss.value) / torch.hypot(run.loss.error, loss.error) for run in runs])
    assert 0.4 < away.square().mean() < 2.5


@named("choice")
def test_stated_errors_of_probabilities_are_those_of_independent_runs(row):
    truth = torch.softmax(problem(row)[0] / SIGMA, 0)
    runs = [dl.exact(*problem(row), row.structure, SIGMA, points=SMALL, generator=seeded(seed)) for seed in range(RUNS)]
    away = torch.stack([(run.probabilities.value - truth) / run.probabilities.error for run in runs])
    assert 0.4 < away.square().mean() < 2.5


def test_a_rare_structure_has_an_error():
    exact = dl.exact(torch.tensor([0.0, 20.0]), torch.tensor([1.0, 0.0]), dl.Choice(), generator=seeded())
    assert_agrees(Estimate(exact.loss.value, exact.loss.error), torch.tensor([0.0, 20.0]).double().softmax(0)[0])


def same(one: Exact, other: Exact) -> bool:
    parts = ("probabilities", "loss", "to_scores", "to_scale")
    return all(
        torch.equal(getattr(getattr(one, part), name), getattr(getattr(other, part), name))
        for part in parts
        for name in ("value", "error")
    )


@named("matching-3x3")
def test_randomness_comes_from_the_generator_alone(row):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = (
        dl.exact(*problem(row), row.structure, SIGMA, points=SMALL, generator=seeded(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert same(first, again)
    assert not torch.equal(first.loss.value, other.loss.value)
    default = dl.exact(*problem(row), row.structure, SIGMA, points=SMALL)
    torch.set_rng_state(state)
    assert same(dl.exact(*problem(row), row.structure, SIGMA, points=SMALL), default)


@named("matching-3x3", "subset")
def test_parts_change_nothing(row, monkeypatch):
    def run():
        return dl.exact(*problem(row), row.structure, SIGMA, points=SMALL, generator=seeded())

    whole = run()
    monkeypatch.setattr(judging, "_CHUNK", 50 * len(row.every))
    parts = run()
    assert torch.equal(parts.probabilities.value, whole.probabilities.value)
    torch.testing.assert_close(gradient(parts).mean, gradient(whole).mean, rtol=1e-12, atol=1e-12)


@every_structure
def test_scores_of_32_bits_give_the_values_of_the_same_numbers_in_64(row):
    scores, cost = row.scores(seed=11, dtype=torch.float32), row.scores(seed=12, dtype=torch.float32)
    single = dl.exact(scores, cost, row.structure, SIGMA, points=64, generator=seeded())
    assert torch.equal(scores.double(), problem(row)[0])
    assert same(single, computed(row.name, points=64))
    assert single.to_scores.value.dtype == torch.float64


@named("choice", "subset", "matching-3x3")
def test_scores_of_64_bits_are_not_rounded(row):
    """What all structures have in common changes nothing; in float32 a million more would leave 4 digits."""
    mu, cost = problem(row)
    near, far = (dl.exact(mu + add, cost, row.structure, SIGMA, points=64, generator=seeded()) for add in (0, 1e6))
    torch.testing.assert_close(gradient(far).mean, gradient(near).mean, rtol=1e-6, atol=1e-6)


def test_scores_and_costs_may_require_gradients_and_costs_may_broadcast():
    scores, cost = torch.zeros(2, 3, requires_grad=True), torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
    exact = dl.exact(scores, cost, dl.Matching(), points=64, generator=seeded())
    assert not exact.to_scores.value.requires_grad
    whole = cost.detach().expand(2, 3)
    assert same(exact, dl.exact(scores.detach(), whole, dl.Matching(), points=64, generator=seeded()))


@named("matching-masked")
def test_forbidden_entries_have_no_gradient(row):
    exact = computed(row.name)
    assert (exact.to_scores.value[MASK] == 0).all()
    assert (exact.to_scores.error[MASK] == 0).all()
    assert (exact.to_scores.value[~MASK] != 0).all()


def test_entries_that_every_structure_has_have_no_gradient():
    """The first row has one column left, so that only the other two rows can change places."""
    forced = torch.tensor([[False, True, True], [False, False, False], [False, False, False]])
    scores, cost = problem(named_row("matching-3x3"))
    exact = dl.exact(scores, cost, dl.Matching(forbidden=forced), points=1 << 12, generator=seeded())
    decided = torch.tensor([[True, True, True], [True, False, False], [True, False, False]])
    assert (exact.to_scores.value[decided] == 0).all()
    rest = dl.exact(scores[1:, 1:], cost[1:, 1:], dl.Matching(), points=1 << 12, generator=seeded())
    assert_agrees(
        Estimate(exact.to_scores.value[1:, 1:], exact.to_scores.error[1:, 1:]),
        Estimate(rest.to_scores.value, rest.to_scores.error),
    )
    assert_agrees(estimate(exact.loss), estimate(Expectation(rest.loss.value + cost[0, 0], rest.loss.error)))


def test_a_single_structure_has_no_gradient_and_no_error():
    exact = dl.exact(torch.zeros(1), torch.tensor([3.0]), dl.Choice(), points=64, generator=seeded())
    values = [exact.probabilities, exact.loss, exact.to_scores, exact.to_scale]
    assert [value.value.item() for value in values] == [1, 3, 0, 0]
    assert [value.error.item() for value in values] == [0] * 4


@every_structure
def test_scale_0_is_the_best_structure_with_no_gradient_and_draws_nothing(row):
    mu, cost = problem(row)
    generator = seeded()
    state = generator.get_state()
    exact = dl.exact(mu, cost, row.structure, 0, generator=generator)
    assert torch.equal(generator.get_state(), state)
    y = row.structure.solve(mu)
    assert exact.loss.value.item() == pytest.approx((cost * y).sum().item())
    assert torch.equal(row.every.flatten(1).mT @ exact.probabilities.value, y.flatten())
    assert gradient(exact).mean.abs().max() == 0
    assert exact.to_scores.value.shape == row.entries
    assert all(part.error.abs().max() == 0 for part in (exact.probabilities, exact.loss, exact.to_scores))


class Uniform(dl.Noise):
    standard_variance = 1 / 12

    def _standard(self, shape, options):
        return torch.rand(shape, **options) - 0.5


CHOICE, THREE = dl.Choice(), torch.zeros(3)
REFUSED = {
    "scores have shape (2, 3): 1 axes before the entries of Choice(); exact values are those of one instance": (
        lambda: dl.exact(torch.zeros(2, 3), THREE, CHOICE)
    ),
    "scores hold 1 NaN or infinite entries of 3": lambda: dl.exact(torch.tensor([0, 1, math.nan]), THREE, CHOICE),
    "scores are torch.int64, expected a floating-point dtype": lambda: dl.exact(THREE.long(), THREE, CHOICE),
    "cost has shape (2,), which does not broadcast to the scores' (3,)": lambda: dl.exact(THREE, THREE[:2], CHOICE),
    "scale runs from -1.0 to -1.0; expected finite numbers >= 0": lambda: dl.exact(THREE, THREE, CHOICE, -1),
    "scale runs from nan to nan": lambda: dl.exact(THREE, THREE, CHOICE, math.nan),
    "points is 1000, expected a power of 2": lambda: dl.exact(THREE, THREE, CHOICE, points=1000),
    "points is 1, expected a power of 2": lambda: dl.exact(THREE, THREE, CHOICE, points=1),
    "points is -4, expected a power of 2": lambda: dl.exact(THREE, THREE, CHOICE, points=-4),
    "Subset(k=8) over (16,) has 12,870 structures, more than the 5,040 that are enumerated; take a": (
        lambda: dl.exact(torch.zeros(16), torch.zeros(16), dl.Subset(8))
    ),
    "this custom structure cannot be enumerated: pass structures= to dl.custom": (
        lambda: dl.exact(THREE, THREE, dl.custom(lambda scores: scores > 0))
    ),
    "Uniform has no _standard_quantile, which exact values need": lambda: dl.exact(
        THREE, THREE, CHOICE, noise=Uniform()
    ),
    "cannot take k = 4 of n = 3": lambda: dl.exact(THREE, THREE, dl.Subset(4)),
    "cost returned shape () for 3 structures; expected one each": lambda: dl.exact(THREE, torch.sum, CHOICE),
    "without a perfect matching": (
        lambda: dl.exact(torch.zeros(2, 2), torch.zeros(2, 2), dl.Matching(torch.ones(2, 2, dtype=torch.bool)))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused(message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=re.escape(message)):
        REFUSED[message]()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_cost_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="cost"):
        dl.exact(THREE, torch.tensor([0.0, 1.0, bad]), CHOICE, points=64)


def test_the_limit_that_is_named_is_the_limit():
    with pytest.raises(ValueError, match="3,628,800 structures, more than the 5,040"):
        dl.exact(torch.zeros(10, 10), torch.zeros(10, 10), dl.Matching())


def total_variation(exact: Exact, other: Tensor) -> tuple[float, float]:
    """Half the sum of the distances of the probabilities, and of their errors."""
    value, error = exact.probabilities.value, exact.probabilities.error
    return distribution.distance(value, other), (error.sum() / 2).item()


def gibbs(row: Row, scores: Tensor, sigma: float) -> Tensor:
    return torch.softmax(row.every.flatten(1) @ scores.flatten().double() / sigma, 0)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("instance", distribution.INSTANCES, ids=lambda instance: instance.structure)
def test_figure_1_low_dimensional_noise_is_not_gibbs(instance, sigma):
    structure, scores, cost = distribution.draw_instance(instance.structure, instance.size, instance.k, instance.seed)
    row = Row(instance.structure, structure, scores.shape)
    exact = dl.exact(scores, cost, structure, sigma, generator=seeded())
    away, error = total_variation(exact, gibbs(row, scores, sigma))
    assert away > 10 * error
    assert away > 0.01
    # Nor is it Gibbs at another temperature.
    others = torch.logspace(-1, 1, 201, dtype=torch.float64) * sigma
    assert min(total_variation(exact, gibbs(row, scores, other))[0] for other in others) > 10 * error


@named("choice")
def test_figure_1_a_choice_is_gibbs(row):
    away, error = total_variation(computed(row.name), gibbs(row, problem(row)[0], SIGMA))
    assert away < 5 * error


@every_structure
def test_figure_1_a_small_sigma_is_a_point_mass(row):
    mu, cost = problem(row)
    exact = dl.exact(mu, cost, row.structure, 1e-4, points=64, generator=seeded())
    still = dl.exact(mu, cost, row.structure, 0.0)
    assert torch.equal(exact.probabilities.value, still.probabilities.value)
    assert gradient(exact).mean.abs().max() < 1e-9


@named("choice", "subset", "matching-3x3", "matching-2x4", "matching-4x2", "custom")
def test_figure_1_a_large_sigma_is_uniform(row):
    """For structures that permuting the entries maps onto each other."""
    mu, cost = problem(row)
    exact = dl.exact(mu, cost, row.structure, 1e6, points=1 << 12, generator=seeded())
    away, error = total_variation(exact, torch.full((len(row.every),), 1 / len(row.every), dtype=torch.float64))
    # Shifting the noise by mu / sigma changes no probability by more than sum |mu| / (e sigma).
    assert away < 5 * error + mu.abs().sum().item() / 1e6


def test_the_distance_is_half_the_sum_of_differences():
    one, other = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    assert distribution.distance(one, other) == 0.25
    assert distribution.distance(one, one) == 0


def test_figure_1_sweeps_from_a_point_to_the_uniform_distribution(monkeypatch):
    monkeypatch.setattr(distribution, "SIGMAS", (0.0, 0.5, 1000.0))
    still, middle, wide = distribution.sweep(distribution.INSTANCES[1])
    assert sorted(still["probabilities"]) == [0, 0, 0, 0, 0, 1]
    assert still["error"] == 0
    assert "gibbs" not in still
    for point in (middle, wide):
        value, other = (torch.tensor(point[name], dtype=torch.float64) for name in ("probabilities", "gibbs"))
        assert point["distance"] == pytest.approx(distribution.distance(value, other))
        assert 0 <= point["closest_distance"] <= point["distance"] + 1e-12
        assert 0.1 <= point["closest_temperature"] <= 10
    assert middle["closest_distance"] > 10 * middle["error"]
    assert max(abs(share - 1 / 6) for share in wide["probabilities"]) < 5 * wide["error"] + 0.01


@pytest.mark.parametrize("parts", PARTS, ids=lambda row: row.name)
def test_the_gauge_holds_summed_over_all_parts(parts):
    """``sigma dL/dsigma = -<mu, dL/dmu>``: the gradients to the factors, which have no noise, are part of it."""
    scores, cost = parts.scores(), parts.cost()
    found = dl.exact(scores, cost, parts.structure, SIGMA, points=1 << 11, generator=seeded())
    gradients = [found.to_scores, *found.to_factors]
    assert [gradient.value.shape for gradient in gradients] == [part.shape for part in scores]
    inner = sum((part * gradient.value).sum() for part, gradient in zip(scores, gradients, strict=True))
    error = sum((part * gradient.error).square().sum() for part, gradient in zip(scores, gradients, strict=True)).sqrt()
    scaled = SIGMA * found.to_scale.value
    assert abs(scaled + inner) < 5 * (error + SIGMA * found.to_scale.error) + 1e-4 * abs(scaled)
    assert len(gradients) == 1 or any(gradient.value.abs().max() > 0.01 for gradient in gradients[1:])


def test_gradients_to_factors_are_what_the_direct_loss_estimates():
    chain = next(row for row in PARTS if row.name == "chain-start-end")
    scores, cost = chain.scores(), chain.cost()
    found = dl.exact(scores, cost, chain.structure, 1.0, points=1 << 12, generator=seeded())
    count = 100_000
    leaves = [part.expand(count, *part.shape).clone().requires_grad_() for part in scores]
    leaves[1] = scores[1].expand(count, 1, *scores[1].shape).clone().requires_grad_()
    loss = dl.direct_loss(
        tuple(leaves), cost, chain.structure, epsilon=0.1, sides="both", scale=1.0, generator=seeded(), reduction="sum"
    )
    loss.backward()
    for leaf, exact in zip(leaves, (found.to_scores, *found.to_factors), strict=True):
        draws = leaf.grad.reshape(count, *exact.value.shape)
        assert_agrees(Estimate.of(draws), Estimate(exact.value, exact.error.clamp_min(1e-3)))
