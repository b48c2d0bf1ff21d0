"""What the gradients of the layers made of maximisers are: ``perturbed``, ``blackbox``, ``imle``, ``identity``."""

import copy

import pytest
import torch
from oracles import Estimate
from tables import STRUCTURES, every_parts, every_structure

import directloss as dl

BOTH = [dl.Normal(), dl.Gumbel(), dl.Logistic()]
ROWS = [row for row in STRUCTURES if row.name in ("choice", "subset", "matching-3x3", "spanning-tree", "knapsack")]
CHAIN = (dl.Chain(), ((3, 2), (2, 2), (2,)))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def within(estimate: Estimate, exact) -> None:
    """Within 4 standard errors in every entry, the error being at most 2 % of the gradient's length."""
    error = torch.hypot(estimate.error, exact.error)
    assert error.norm() < 0.02 * exact.value.norm()
    assert ((estimate.mean - exact.value).abs() < 4 * error).all()


def estimates(structure, parts, cost, sigma, repetitions=4000, **options):
    """Independent gradients of ``<cost, perturbed>`` to the scale and to each part, (R, ...)."""
    scale = torch.full((repetitions,), sigma, dtype=torch.float64, requires_grad=True)
    # Each repetition has factors of its own, which have as many axes as their entries.
    alone = [
        part.reshape(*[1] * (len(own) - part.dim()), *part.shape)
        for part, own in zip(parts, structure.fit(parts)[0], strict=True)
    ]
    leaves = [part.expand(repetitions, *part.shape).clone().requires_grad_() for part in alone]
    y = dl.perturbed(tuple(leaves) if len(leaves) > 1 else leaves[0], structure, scale=scale, **options)
    (y * cost).sum().backward()
    return [scale.grad, *(leaf.grad for leaf in leaves)]


def check_against_exact(structure, parts, cost, sigma, noise, **options):
    scores = parts if len(parts) > 1 else parts[0]
    exact = dl.exact(scores, cost, structure, sigma, noise=noise, points=1 << 12, generator=seeded())
    drawn = estimates(structure, parts, cost, sigma, noise=noise, generator=seeded(1), **options)
    for gradient, truth in zip(drawn, [exact.to_scale, exact.to_scores, *exact.to_factors], strict=True):
        within(Estimate.of(gradient.reshape(len(gradient), *truth.value.shape)), truth)
    # E[loss] does not change with (a mu, a sigma): sigma dL/dsigma = -<mu, dL/dmu>, over all parts.
    to_scale, *to_parts = drawn
    rate = sigma * to_scale
    for part, gradient in zip(parts, to_parts, strict=True):
        rate = rate + (part * gradient.reshape(-1, *part.shape)).flatten(1).sum(1)
    gauge = Estimate.of(rate)
    assert gauge.mean.abs() < 4 * gauge.error
    assert gauge.error < 0.03 * (sigma * exact.to_scale.value.abs() + exact.to_scores.value.norm())


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("noise", BOTH, ids=lambda noise: type(noise).__name__)
def test_perturbed_estimates_the_exact_gradient(row, noise):
    scores, cost = row.scores(seed=11), row.scores(seed=12)
    repetitions = 10_000 if row.name == "matching-3x3" else 4000  # nine entries have a larger variance
    check_against_exact(row.structure, (scores,), cost, 1.5, noise, samples=100, repetitions=repetitions)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("baseline", [False, True])
def test_perturbed_is_unbiased_whatever_reduces_its_variance(antithetic, baseline):
    row, options = ROWS[0], {"antithetic": antithetic, "baseline": baseline}
    arguments = (row.structure, (row.scores(seed=11),), row.scores(seed=12), 1.5, dl.Gumbel())
    check_against_exact(*arguments, samples=100, repetitions=8000, **options)


def test_perturbed_estimates_the_gradient_to_parts_without_noise():
    structure, shapes = CHAIN
    parts = tuple(torch.randn(shape, generator=seeded(seed), dtype=torch.float64) for seed, shape in enumerate(shapes))
    cost = torch.randn(shapes[0], generator=seeded(7), dtype=torch.float64)
    check_against_exact(structure, parts, cost, 1.5, dl.Normal(), samples=100, repetitions=6000)


def test_a_baseline_and_antithetic_draws_lower_the_variance():
    row = ROWS[1]
    arguments = (row.structure, (row.scores(seed=11),), row.scores(seed=12) + 1, 1.0)

    def spread(**options):
        return estimates(*arguments, repetitions=2000, samples=10, generator=seeded(), **options)[1].var(0).sum()

    assert spread() < 0.8 * spread(baseline=False)
    assert spread(antithetic=True, baseline=False) < 0.8 * spread(baseline=False)


@every_structure
def test_perturbed_is_the_mean_of_maximisers(row):
    scores, noise = row.scores(3), dl.Normal()
    if row.structure.nonpositive:
        with pytest.raises(ValueError, match="no positive scores"):
            dl.perturbed(scores, row.structure)
        return
    found = dl.perturbed(scores, row.structure, scale=0.7, samples=5, generator=seeded())
    draws = noise.sample((5, *scores.shape), generator=seeded(), dtype=scores.dtype)
    torch.testing.assert_close(found, row.structure.solve(scores + 0.7 * draws).to(scores).mean(0))


@every_structure
def test_blackbox_with_a_linear_loss_is_the_direct_loss(row):
    scores, cost = row.scores(6), row.scores(6, seed=1)
    if row.structure.nonpositive:
        scores = -scores.abs() - 5
    for step in (0.5, 3.0):
        one, other = (scores.clone().requires_grad_() for _ in range(2))
        y = dl.blackbox(one, row.structure, step=step)
        (y * cost).sum().backward()
        dl.direct_loss(other, cost, row.structure, epsilon=-step, reduction="sum").backward()
        torch.testing.assert_close(y.detach(), row.structure.solve(scores))
        torch.testing.assert_close(one.grad, other.grad)


@every_parts
@pytest.mark.parametrize("sides", ["one", "both"])
def test_imle_with_a_linear_loss_is_the_direct_loss_on_the_same_noise(row, sides):
    scores, cost = row.scores(4), row.cost(4)
    noise = torch.randn(3, *scores[0].shape, generator=seeded(), dtype=torch.float64)
    gradients = []
    for rule in ("layer", "loss"):
        leaves = tuple(part.clone().requires_grad_() for part in scores)
        scale = torch.full((4,), 0.8, dtype=torch.float64, requires_grad=True)
        if rule == "layer":
            y = dl.imle(leaves, row.structure, step=2.0, sides=sides, scale=scale, noise=noise, samples=3)
            (y * cost).sum().backward()
        else:
            options = {"epsilon": -2.0, "sides": sides, "scale": scale, "noise": noise, "reduction": "sum"}
            dl.direct_loss(leaves, cost, row.structure, **options).backward()
        gradients.append([scale.grad, *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*gradients)


def test_a_loss_that_is_not_linear_is_taken_at_y():
    """The direct loss of a function is the same rule: its cost there is the gradient that arrives here."""
    row = ROWS[2]
    scores, target = row.scores(5), row.structure.solve(row.scores(5, seed=1))
    weight = row.scores(5, seed=2)

    def loss(y):
        return ((y - target) * weight).square().sum((-1, -2))

    one, other = (scores.clone().requires_grad_() for _ in range(2))
    loss(dl.blackbox(one, row.structure, step=4.0)).sum().backward()
    dl.direct_loss(other, loss, row.structure, epsilon=-4.0, reduction="sum").backward()
    assert one.grad.any()
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("projection", ["none", "mean", "norm", "both"])
def test_identity_sends_the_gradient_through_the_projection(projection):
    row = ROWS[2]
    scores, weight = row.scores(4), row.scores(4, seed=1)

    def project(theta):
        if projection in ("mean", "both"):
            theta = theta - theta.mean((-1, -2), keepdim=True)
        if projection in ("norm", "both"):
            theta = theta / theta.flatten(-2).norm(dim=-1)[..., None, None]
        return theta

    one, other = (scores.clone().requires_grad_() for _ in range(2))
    y = dl.identity(one, row.structure, projection=projection)
    (y * weight).sum().backward()
    (project(other) * weight).sum().backward()
    torch.testing.assert_close(y.detach(), row.structure.solve(scores))
    torch.testing.assert_close(one.grad, other.grad)


def test_identity_gives_further_parts_nothing_and_scores_of_zero_the_gradient_itself():
    structure, shapes = CHAIN
    parts = tuple(torch.randn(shape, generator=seeded()).requires_grad_() for shape in shapes)
    dl.identity(parts, structure).square().sum().backward()
    assert parts[0].grad.any()
    assert not parts[1].grad.any()
    zeros = torch.zeros(3, requires_grad=True)
    (dl.identity(zeros, dl.Choice()) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert torch.equal(zeros.grad, torch.tensor([1.0, 2.0, 3.0]))


# The adaptive step


def train(step: dl.AdaptiveStep, scores: torch.Tensor, steps: int, seed: int) -> torch.Tensor:
    cost, draws = torch.randn(4, 6, generator=seeded(9)), seeded(seed)
    for _ in range(steps):
        leaf = scores.clone().requires_grad_()
        (dl.imle(leaf, dl.Subset(2), step=step, sides="both", generator=draws) * cost).sum().backward()
        scores = scores - 0.1 * leaf.grad
    return scores


def test_an_adaptive_step_resumes_exactly():
    start = torch.randn(4, 6, generator=seeded())
    step = dl.AdaptiveStep(change=0.05)
    middle = train(step, start, 7, seed=1)
    saved = copy.deepcopy(step.state_dict())
    end = train(step, middle, 7, seed=2)
    other = dl.AdaptiveStep(change=0.05)
    other.load_state_dict(saved)
    assert torch.equal(train(other, middle, 7, seed=2), end)
    assert torch.equal(other.state, step.state)
    assert not torch.equal(step.state, saved["state"])


def test_an_adaptive_step_moves_until_gradients_are_as_dense_as_wanted():
    torch.manual_seed(0)
    scores, cost = torch.randn(200, 6, generator=seeded()), torch.randn(200, 6, generator=seeded(1))
    step = dl.AdaptiveStep(1.0, change=0.01)
    for _ in range(400):
        leaf = scores.clone().requires_grad_()
        (dl.imle(leaf, dl.Choice(), step=step, sides="one", generator=seeded(2)) * cost).sum().backward()
    assert abs((leaf.grad != 0).sum().item() / 200 - 1) < 0.15
    before = step.state.clone()
    assert before[0] != 1
    step.eval()
    leaf = scores.clone().requires_grad_()
    dl.imle(leaf, dl.Choice(), step=step).square().sum().backward()
    assert torch.equal(step.state, before)
    assert step.half().state.dtype == torch.float64


def test_a_gradient_of_zero_needs_no_step():
    leaf = torch.zeros(3, requires_grad=True)
    (0 * dl.blackbox(leaf, dl.Choice(), step=dl.AdaptiveStep())).sum().backward()
    assert not leaf.grad.any()


# Noise


@pytest.mark.parametrize("noise", [*BOTH, dl.Gumbel(variance=3.0)], ids=repr)
def test_the_score_is_the_slope_of_the_log_density(noise):
    value = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(noise.density(value).log().sum(), value)
    torch.testing.assert_close(noise.score(value.detach()), -slope)


@pytest.mark.parametrize("noise", BOTH, ids=lambda noise: type(noise).__name__)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_antithetic_draws_have_the_distribution_and_mirror_its_quantiles(noise, dtype):
    draws = noise.antithetic((200_000,), generator=seeded(), dtype=dtype, device=torch.device("cpu")).double()
    assert torch.isfinite(draws).all()
    low, high = draws.chunk(2)
    assert low.mean().abs() < 5 * low.std() / len(low) ** 0.5
    assert abs(low.var().item() / noise.standard_variance - 1) < 0.03
    assert (high[low.argsort()].diff() <= 0.02 * high.abs().max()).all()  # as far as half precision can tell
    assert torch.corrcoef(draws.reshape(2, -1))[0, 1] < -0.8


REFUSED = {
    "whose density is known": lambda: dl.perturbed(torch.zeros(3), dl.Choice(), noise=torch.zeros(1, 3)),
    "scale is 0": lambda: dl.perturbed(torch.zeros(3), dl.Choice(), scale=0.0),
    "scale has 0 among": lambda: dl.perturbed(torch.zeros(2, 3), dl.Choice(), scale=torch.tensor([0.0, 1.0])),
    "come in pairs": lambda: dl.perturbed(torch.zeros(3), dl.Choice(), samples=3, antithetic=True),
    "step is 0": lambda: dl.blackbox(torch.zeros(3), dl.Choice(), step=0),
    "step is 'far'": lambda: dl.imle(torch.zeros(3), dl.Choice(), step="far"),
    "sides is 'two'": lambda: dl.imle(torch.zeros(3), dl.Choice(), sides="two"),
    "projection is 'most'": lambda: dl.identity(torch.zeros(3), dl.Choice(), projection="most"),
    "start is -1": lambda: dl.AdaptiveStep(-1.0),
    "decay is 1": lambda: dl.AdaptiveStep(decay=1.0),
    "cannot learn inside torch.func": lambda: torch.func.vmap(
        lambda s: dl.imle(s, dl.Choice(), step=dl.AdaptiveStep())
    )(torch.zeros(2, 3)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_settings_are_refused(message):
    with pytest.raises((ValueError, TypeError), match=message):
        REFUSED[message]()
