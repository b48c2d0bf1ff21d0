"""The audit measures what it says: right losses pass, wrong ones are caught, and orders are those of theory."""

import math
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import closed_estimate, closed_gradient
from tables import STRUCTURES, Row, every_structure, named
from torch import Tensor

import directloss as dl
from directloss.judging import audit as auditor
from directloss.judging import calls as calling
from directloss.judging.audit import STEPS
from directloss.judging.exact import Exact, Expectation
from directloss.judging.measurement import Audit, Measurement
from directloss.noise import EULER_GAMMA

closed_form = named("choice", "subset")
CHOICE, PAIR, MATCHING = (
    next(row for row in STRUCTURES if row.name == name) for name in ("choice", "subset", "matching-3x3")
)
TWO = (torch.tensor([0.0, 0.7]), torch.tensor([0.0, 1.0]))  # one of two: P(second) = sigmoid(difference / sigma)


pytestmark = pytest.mark.usefixtures("fewer_points")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(row: Row, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return row.scores(seed=11, dtype=dtype), row.scores(seed=12, dtype=dtype)


def audit(loss, row: Row, **options) -> Audit:
    return dl.audit(loss, *problem(row), row.structure, **{"generator": seeded(), **options})


def audit_two(loss=dl.direct_loss, **options) -> Audit:
    return dl.audit(loss, *TWO, dl.Choice(), **{"generator": seeded(), "repetitions": 1000, **options})


def by_target(found: Audit, target: str) -> list[Measurement]:
    return [row for row in found.rows if row.target == target]


def away(row: Measurement, expected: Tensor) -> float:
    """How far the estimates' mean is from what it should be, in the stated error."""
    return (row.mean - expected).norm().item() / row.bias_error


def truth(found: Audit, row: Measurement) -> Tensor:
    exact = found.exact[row.scale]
    return exact.to_scores.value if row.target == "scores" else exact.to_scale.value


# What the numbers mean


@closed_form
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_bias_is_that_of_the_closed_form(row, scale):
    found = audit(dl.direct_loss, row, scale=scale, epsilons=[-0.7, 0.7], repetitions=50_000)
    mu, cost = (tensor.double() for tensor in problem(row))
    sigma = torch.tensor(scale, dtype=torch.float64)
    exact = closed_gradient(row, mu, sigma, cost)
    assert len(found.rows) == 6
    for one in found.rows:
        expected = closed_estimate(row, mu, sigma, cost, one.settings["epsilon"], one.settings["sides"])
        part = slice(0, -1) if one.target == "scores" else -1
        assert away(one, expected[part]) < 5
        assert abs(one.bias - (expected - exact)[part].norm().item()) < 5 * one.bias_error
        assert one.bias_error < 0.1 * exact[part].norm()


def test_the_stated_error_is_that_of_independent_estimates():
    """Squared distances to the estimator's own mean, in stated errors: 1 on average over 60 settings."""
    epsilons = [step / 20 for step in range(8, 38)]
    found = audit(dl.direct_loss, CHOICE, epsilons=epsilons, repetitions=2000)
    mu, cost = (tensor.double() for tensor in problem(CHOICE))
    sigma = torch.tensor(1.0, dtype=torch.float64)
    for target, part in (("scores", slice(0, -1)), ("scale", -1)):
        rows = by_target(found, target)
        assert len(rows) == 60
        distances = [
            away(row, closed_estimate(CHOICE, mu, sigma, cost, row.settings["epsilon"], row.settings["sides"])[part])
            for row in rows
        ]
        assert 0.4 < sum(distance**2 for distance in distances) / len(distances) < 2.5


@pytest.mark.parametrize("epsilon", [0.5, -2.0])
def test_zero_share_cosine_and_deviation_are_those_of_one_of_two(epsilon):
    """A call gives (1, -1) / epsilon where the maximisers differ and nothing where they do not."""
    scale, repetitions = 0.8, 20_000
    (row, _) = audit_two(scale=scale, epsilons=[epsilon], sides=["one"], repetitions=repetitions).rows
    moved = abs(torch.sigmoid(torch.tensor([0.7, 0.7 + epsilon]) / scale).diff().item())
    error = math.sqrt(moved * (1 - moved) / repetitions)
    assert abs(1 - row.zero - moved) < 5 * error
    assert row.cosine == pytest.approx(1 - row.zero)
    share = 1 - row.zero
    variance = 2 * share * (1 - share) / epsilon**2 * repetitions / (repetitions - 1)
    assert row.deviation == pytest.approx(math.sqrt(variance), rel=1e-4)
    assert row.mean.tolist() == pytest.approx([-share / abs(epsilon), share / abs(epsilon)], rel=1e-4)
    assert (row.repetitions, row.scale, row.target) == (repetitions, scale, "scores")
    assert row.seconds > 0


def test_a_tiny_epsilon_gives_no_gradient_at_all():
    for row in audit_two(epsilons=[1e-9, -1e-9]).rows:
        assert row.zero == 1
        assert row.cosine == row.deviation == row.mean.norm() == 0
        assert row.bias == pytest.approx(truth(audit_two(epsilons=[1.0]), row).norm().item(), rel=1e-3)


def test_samples_divide_the_variance_and_leave_the_bias():
    found = audit(dl.direct_loss, CHOICE, epsilons=[1.0], sides=["both"], samples=[1, 4, 16], repetitions=40_000)
    one, four, sixteen = by_target(found, "scores")
    # The relative error of a standard deviation is about sqrt(kurtosis / 4 R), below .01 here.
    assert [row.deviation * factor for row, factor in ((four, 2), (sixteen, 4))] == pytest.approx(
        [one.deviation] * 2, rel=0.05
    )
    assert one.cosine < four.cosine < sixteen.cosine
    assert one.zero > four.zero > sixteen.zero
    for row in (one, four):
        assert (row.mean - sixteen.mean).norm() < 5 * math.hypot(row.bias_error, sixteen.bias_error)


@every_structure
def test_every_structure_can_be_audited(row):
    found = audit(dl.direct_loss, row, epsilons=[0.3], sides=["both"], repetitions=500)
    assert found.structure == repr(row.structure)
    assert [one.target for one in found.rows] == ["scores", "scale"]
    for one in found.rows:
        assert one.mean.shape == truth(found, one).shape
        # The bias of second order is a small part of the gradient here.
        assert away(one, truth(found, one)) < 5 + 0.2 * truth(found, one).norm().item() / one.bias_error


@pytest.mark.parametrize("noise", [dl.Normal(), dl.Logistic(), dl.Gumbel(variance=3.0)], ids=str)
def test_estimator_and_exact_values_have_the_same_noise(noise):
    options = {"noise": noise, "epsilons": [0.1], "sides": ["both"], "repetitions": 40_000}
    found = audit(dl.direct_loss, MATCHING, **options)
    for row in found.rows:
        assert away(row, truth(found, row)) < 5
    wrong = audit(
        lambda scores, cost, structure, **options: dl.direct_loss(
            scores, cost, structure, **{**options, "noise": dl.Normal(variance=30.0)}
        ),
        MATCHING,
        **options,
    )
    assert max(away(row, truth(wrong, row)) for row in wrong.rows) > 10


# Orders of the bias


def softmax_difference(scores, cost, structure, *, scale, epsilon, sides, generator):
    """What the direct loss of a choice is on average: no variance, so that orders show at small epsilons."""
    steps = (epsilon, 0.0) if sides == "one" else (epsilon, -epsilon)
    mu, sigma = scores[:1].detach().double(), scale[:1].detach().double()

    def expected(step):  # E[y] and E[<gamma, y>], the latter from E max = <mu, y> + sigma <gamma, y>
        shifted = mu + step * cost
        y = torch.softmax(shifted / sigma[:, None], -1)
        best = sigma * torch.logsumexp(shifted / sigma[:, None], -1)
        return y, (best - (shifted * y).sum(-1)) / sigma

    (ahead, noise_ahead), (behind, noise_behind) = map(expected, steps)
    width = steps[0] - steps[1]
    to_scores = ((ahead - behind) / width).to(scores)
    to_scale = ((noise_ahead - noise_behind) / width).to(scores)
    return (scores * to_scores).sum(-1) + scale * to_scale


def known(*values: Tensor, error: float = 0.0) -> Exact:
    best = torch.zeros((), dtype=torch.float64)  # which no audit asks for
    return Exact(*(Expectation(value, torch.full_like(value, error)) for value in (*values, best)))


@pytest.mark.parametrize("seed", range(6))
def test_orders_are_1_and_2_where_epsilon_is_small(seed, monkeypatch):
    row, one = Row("choice", dl.Choice(), (3,)), torch.ones((), dtype=torch.float64)
    scores, cost = row.scores(seed=seed), row.scores(seed=seed + 100)
    gradient = closed_gradient(row, scores, one, cost)
    monkeypatch.setattr(auditor, "exact", lambda *_, **__: known(one, one, gradient[:-1], gradient[-1], error=1e-10))
    epsilons = [sign * step for sign in (-1, 1) for step in (0.005, 0.007, 0.01, 0.014, 0.02)]
    found = dl.audit(softmax_difference, scores, cost, dl.Choice(), epsilons=epsilons, repetitions=2)
    for target in ("scores", "scale"):
        slopes = found.slopes(target)
        assert slopes.keys() == {("one, ε < 0", 1.0), ("one, ε > 0", 1.0), ("both", 1.0)}
        for (rule, _), (slope, error) in slopes.items():
            assert error < 0.01
            assert abs(slope - (2 if rule == "both" else 1)) < 0.01 + 5 * error


WIDE = (0.5, 0.7, 1.0, 1.4, 2.0)
# Instances whose next orders are small, so that an order can be told from so many calls.
ORDERS = {
    "both": ("scores", "both", 2, [0.0, 0.0], [1.0, 0.0], WIDE),
    "towards": ("scores", "one, ε < 0", 1, [-1.1, -2.07, -2.42], [1.0, 0.41, 0.0], WIDE),
    "away": ("scores", "one, ε > 0", 1, [1.42, 1.98, -1.14, 1.24], [0.54, 0.0, 0.82, 1.0], WIDE),
    "both, scale": ("scale", "both", 2, [2.09, 0.63, 1.2, 0.03], [0.0, 0.61, 0.78, 1.0], WIDE),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_the_direct_losss_bias(name):
    target, rule, order, scores, cost, sizes = ORDERS[name]
    found = dl.audit(
        dl.direct_loss,
        torch.tensor(scores),
        torch.tensor(cost),
        dl.Choice(),
        epsilons=[-size if "<" in rule else size for size in sizes],
        sides=["both" if rule == "both" else "one"],
        repetitions=700_000,
        generator=seeded(),
    )
    slope, error = found.slopes(target)[rule, 1.0]
    assert error < 0.15
    assert abs(slope - order) < 0.3


def test_the_order_of_a_pairs_bias_on_both_sides_by_default():
    found = audit(dl.direct_loss, PAIR, sides=["both"], repetitions=500_000)
    slope, error = found.slopes()["both", 1.0]
    assert error < 0.15
    assert abs(slope - 2) < 0.3


def test_the_stated_error_of_an_order_holds_where_the_bias_turns():
    """The audit docstring's instance. In closed form, the bias falls from .086 at epsilon -2 to .011 at -5.6."""
    scores, cost = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), torch.tensor([0.0, 1.0, 1.0]).double()
    found = dl.audit(
        softmax_difference, scores, cost, dl.Choice(), epsilons=[-step for step in STEPS], sides=["one"], repetitions=2
    )
    rows = [replace(row, bias_error=0.001) for row in found.rows]
    slope, error = replace(found, rows=rows).slopes()["one, ε < 0", 1.0]
    assert math.isnan(slope) or abs(slope - 1) < 5 * error


# Estimators of the user's own


def perturbed(scores, scale, generator) -> tuple[Tensor, Tensor]:
    """Gumbel noise and the perturbed scores, for estimators that are written out."""
    gamma = dl.Gumbel().sample(scores.shape, generator=generator, dtype=scores.dtype)
    return gamma, scores + scale.reshape(-1, *[1] * (scores.dim() - 1)) * gamma


def reinforce(scores, cost, structure, *, scale, generator):
    """The score function: unbiased at any scale."""
    theta = perturbed(scores.detach(), scale.detach(), generator)[1]
    loss = (structure.solve(theta) * cost).flatten(1).sum(1)
    wide = scale.reshape(-1, *[1] * (scores.dim() - 1))
    g = (theta - scores) / wide + EULER_GAMMA
    log_prob = (-g - torch.exp(-g) - torch.log(wide)).flatten(1).sum(1)
    return loss.detach() * log_prob


@pytest.mark.parametrize("row", [CHOICE, MATCHING], ids=lambda row: row.name)
def test_an_unbiased_estimator_shows_no_bias(row):
    found = audit(reinforce, row, scale=0.8, repetitions=100_000)
    assert [one.target for one in found.rows] == ["scores", "scale"]
    for one in found.rows:
        assert (one.settings, one.rule) == ({}, "-")
        assert away(one, truth(found, one)) < 5
        assert one.bias < 5 * one.bias_error < 0.5 * truth(found, one).norm()
        assert one.zero == 0
    assert found.slopes() == {}


def _twice(*inputs, **options):
    return 2 * dl.direct_loss(*inputs, **options)


def _flipped(*inputs, **options):
    return -dl.direct_loss(*inputs, **options)


def _undivided(*inputs, epsilon, **options):
    return abs(epsilon) * dl.direct_loss(*inputs, epsilon=epsilon, **options)


def _another_sigma(*inputs, scale, **options):
    return dl.direct_loss(*inputs, scale=3 * scale, **options)


WRONG = {"twice": _twice, "flipped": _flipped, "undivided": _undivided, "another sigma": _another_sigma}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("row", [CHOICE, MATCHING], ids=lambda row: row.name)
def test_a_wrong_estimator_is_caught(row, name):
    options = {"epsilons": [0.2], "sides": ["both"], "repetitions": 20_000}
    (right, _), (wrong, _) = (
        audit(dl.direct_loss, row, **options).rows,
        (found := audit(WRONG[name], row, **options)).rows,
    )
    assert right.bias < 5 * right.bias_error
    assert wrong.bias > 10 * wrong.bias_error
    if name != "another sigma":
        size = truth(found, wrong).norm()
        expected = {"twice": 1, "flipped": 2, "undivided": 0.8}[name] * size
        assert abs(wrong.bias - expected) < 5 * wrong.bias_error + 0.05 * size
        assert (wrong.cosine < 0) == (name == "flipped")
        assert abs(wrong.cosine) == pytest.approx(right.cosine, abs=1e-9)


class _Unshared(torch.autograd.Function):
    """One-sided differences of maximisers under noise of their own."""

    @staticmethod
    def forward(ctx, scores, scale, cost, structure, epsilon, generator, own):
        gamma, theta = perturbed(scores, scale, generator)
        other, another = perturbed(scores, scale, generator)
        y, y_eps = structure.solve(theta), structure.solve(another + epsilon * cost)
        ctx.save_for_backward((y_eps - y) / epsilon, (y_eps * (other if own else gamma) - y * gamma) / epsilon)
        return (y * cost).flatten(1).sum(1)

    @staticmethod
    def backward(ctx, grad):
        to_scores, to_scale = ctx.saved_tensors
        wide = grad.reshape(-1, *[1] * (to_scores.dim() - 1))
        return (wide * to_scores, grad * to_scale.flatten(1).sum(1), *[None] * 5)


@pytest.mark.parametrize("row", [CHOICE, MATCHING], ids=lambda row: row.name)
def test_noise_that_is_not_shared_shows_in_the_spread_and_the_wrong_noise_in_the_scale(row):
    """The means are the same: E[y_eps] - E[y] does not ask whether the two met. Only the spread grows as 1 / eps."""

    def unshared(own):
        return lambda scores, cost, structure, *, scale, epsilon, generator: _Unshared.apply(
            scores, scale, cost, structure, epsilon, generator, own
        )

    options = {"epsilons": [0.2], "sides": ["one"], "repetitions": 50_000}
    (right, right_scale), (apart, apart_scale), (mixed, mixed_scale) = (
        audit(estimator, row, **options).rows for estimator in (dl.direct_loss, unshared(True), unshared(False))
    )
    for one, other in ((right, apart), (right, mixed), (right_scale, apart_scale)):
        assert (one.mean - other.mean).norm() < 5 * math.hypot(one.bias_error, other.bias_error)
        assert other.deviation > 2 * one.deviation
    assert apart.zero < right.zero
    assert mixed_scale.bias > 10 * mixed_scale.bias_error


def test_a_relaxation_can_be_audited():
    def relaxed(scores, cost, structure, *, scale, generator):
        theta = perturbed(scores, scale, generator)[1]
        return (dl.sinkhorn(theta, structure, temperature=0.5) * cost).sum((-1, -2))

    def plainly(scores, cost, structure, *, noise, samples, generator):
        soft = dl.sinkhorn(dl.perturb(scores, noise=noise, samples=samples, generator=generator), structure)
        return (soft * cost).sum((-1, -2)).mean(0)

    found = audit(relaxed, MATCHING, repetitions=20_000)
    for row in found.rows:
        assert row.zero == 0
        assert row.bias > 5 * row.bias_error
        assert row.cosine > 0.2
    found = audit(plainly, MATCHING, samples=[1, 8], repetitions=5000)
    assert [row.target for row in found.rows] == ["scores"] * 2
    assert [row.settings for row in found.rows] == [{"samples": 1}, {"samples": 8}]
    assert found.rows[1].deviation < found.rows[0].deviation


# Which keywords an estimator gets


def recorder(calls: list[dict]):
    """Write down what an estimator gets, and return a loss."""

    def record(scores, cost, structure, **given):
        calls.append({"scores": scores, "cost": cost, "structure": structure, **given})
        return scores.flatten(1).sum(1)

    return record


def test_an_estimator_with_any_keywords_gets_them_all():
    calls: list[dict] = []
    noise, generator = dl.Normal(), seeded()
    found = audit_two(
        recorder(calls), epsilons=[0.5], samples=[2], sides=["one"], repetitions=7, noise=noise, generator=generator
    )
    warm_up, call = calls
    assert len(warm_up["scores"]) == 2
    assert list(call) == [
        "scores", "cost", "structure", "epsilon", "sides", "samples", "noise", "generator", "reduction", "scale"
    ]  # fmt: skip
    assert torch.equal(call["scores"], TWO[0].expand(7, 2))
    assert torch.equal(call["cost"], TWO[1])
    assert torch.equal(call["scale"], torch.ones(7))
    assert call["scores"].requires_grad
    assert call["scale"].requires_grad
    assert (call["epsilon"], call["sides"], call["samples"]) == (0.5, "one", 2)
    assert call["noise"] is noise
    assert call["generator"] is generator
    assert call["reduction"] == "none"
    assert found.rows[0].settings == {"epsilon": 0.5, "sides": "one", "samples": 2}
    # It uses no scale: that gradient is zero, not missing.
    assert [row.zero for row in found.rows] == [0, 1]


@pytest.mark.parametrize("repetitions", [7, 3000])
def test_a_scalar_is_the_mean_of_the_instances(repetitions, monkeypatch):
    """Also of portions of different sizes."""

    def averaged(scores, cost, structure, *, scale, epsilon, sides, generator):
        options = {"scale": scale, "epsilon": epsilon, "sides": sides, "generator": generator}
        return dl.direct_loss(scores, cost, structure, **options)

    apart = partial(dl.direct_loss, samples=1)
    monkeypatch.setattr(calling, "_CHUNK", 2000)
    options = {"epsilons": [0.5], "repetitions": repetitions}
    for one, mean in zip(audit_two(apart, **options).rows, audit_two(averaged, **options).rows, strict=True):
        torch.testing.assert_close(one.mean, mean.mean, rtol=1e-5, atol=1e-6)
        for name in ("target", "settings", "zero", "repetitions"):
            assert getattr(one, name) == getattr(mean, name)
        for name in ("bias", "bias_error", "deviation", "cosine", "signal"):
            assert getattr(one, name) == pytest.approx(getattr(mean, name), rel=1e-4, abs=1e-6)


def test_a_task_loss_that_is_a_function_can_be_audited():
    """Linear, so that linearising it loses nothing: rows and exact values are those of its coefficients."""
    scores, cost = problem(MATCHING)
    options = {"epsilons": [0.4], "sides": ["both"], "repetitions": 500}
    linear, function = (
        dl.audit(dl.direct_loss, scores, given, MATCHING.structure, generator=seeded(), **options)
        for given in (cost, lambda y: (y * cost).sum((-1, -2)))
    )
    for one, other in zip(linear.rows, function.rows, strict=True):
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(truth(linear, one), truth(function, other), rtol=1e-5, atol=1e-6)


def test_an_estimator_gets_only_the_keywords_it_names():
    calls: list[dict] = []
    record = recorder(calls)
    takes_some = lambda scores, cost, structure, *, epsilon, samples=3: record(  # noqa: E731
        scores, cost, structure, epsilon=epsilon, samples=samples
    )
    found = audit_two(takes_some, epsilons=[-0.5, 0.5], scale=[1, 2], samples=[4])
    assert [(call["epsilon"], call["samples"]) for call in calls[1:]] == [(-0.5, 4), (0.5, 4)] * 2
    assert {row.target for row in found.rows} == {"scores"}
    assert [row.rule for row in found.rows] == ["one, ε < 0", "one, ε > 0"] * 2
    assert [row.scale for row in found.rows] == [1, 1, 2, 2]


def test_an_estimator_without_settings_is_measured_once_for_each_scale():
    found = audit_two(lambda scores, cost, structure: recorder([])(scores, cost, structure), scale=[0.5, 1.0])
    assert [(row.target, row.scale, row.settings, row.rule) for row in found.rows] == [
        ("scores", 0.5, {}, "-"),
        ("scores", 1.0, {}, "-"),
    ]


def test_both_sides_of_an_epsilon_and_of_its_negative_are_measured_once():
    found = audit_two(epsilons=[-1.0, 1.0, -2.0], repetitions=10)
    settings = [(row.settings["sides"], row.settings["epsilon"]) for row in by_target(found, "scores")]
    assert settings == [("one", -1.0), ("both", 1.0), ("one", 1.0), ("one", -2.0), ("both", 2.0)]
    assert [row.rule for row in by_target(found, "scores")] == [
        "one, ε < 0", "both", "one, ε > 0", "one, ε < 0", "both"
    ]  # fmt: skip


@pytest.mark.parametrize("scale", [0.5, 3.0, 0.0])
@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_default_epsilons_follow_the_scale_and_the_range_of_the_loss(scale, factor):
    scores, cost = problem(MATCHING)
    losses = MATCHING.every.flatten(1) @ (factor * cost).double().flatten()
    found = dl.audit(
        dl.direct_loss, scores, factor * cost, MATCHING.structure, scale=scale, repetitions=2, generator=seeded()
    )
    unit = (scale or 1) / (losses.max() - losses.min()).item()
    epsilons = [row.settings["epsilon"] for row in by_target(found, "scores") if row.rule.startswith("one")]
    assert epsilons == pytest.approx([sign * step * unit for sign in (-1, 1) for step in STEPS], rel=1e-5)


# Repetitions, randomness, progress


@pytest.mark.parametrize("chunk", [1, 100, 1999, 4_000_000])
def test_parts_add_up_to_the_repetitions(chunk, monkeypatch):
    sizes: list[int] = []

    def record(scores, cost, structure, *, samples):
        sizes.append(len(scores))
        return scores[:, 0]

    monkeypatch.setattr(calling, "_CHUNK", chunk)
    (row,) = audit_two(record, samples=[3], repetitions=50).rows
    while sizes and sum(sizes) > 50:  # the warm-up call
        del sizes[0]
    assert sum(sizes) == row.repetitions == 50
    assert max(sizes) == min(50, max(1, chunk // 6))
    assert row.mean.tolist() == [1, 0]
    assert row.deviation == 0


def test_parts_change_no_count(monkeypatch):
    whole = audit_two(epsilons=[0.5], repetitions=3000)
    monkeypatch.setattr(calling, "_CHUNK", 500)
    parts = audit_two(epsilons=[0.5], repetitions=3000)
    for one, other in zip(whole.rows, parts.rows, strict=True):
        assert one.repetitions == other.repetitions == 3000
        assert (one.mean - other.mean).norm() < 5 * math.hypot(one.bias_error, other.bias_error)
        assert one.deviation == pytest.approx(other.deviation, rel=0.2)


def test_randomness_comes_from_the_generator_alone():
    def numbers(found):
        names = ("bias", "bias_error", "deviation", "cosine", "zero")
        return [[getattr(row, name) for name in names] + row.mean.flatten().tolist() for row in found.rows]

    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = (audit_two(epsilons=[0.5], generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert numbers(first) == numbers(again)
    assert numbers(first) != numbers(other)


def test_seconds_are_those_of_calls_after_the_first(monkeypatch):
    """By a clock that only the estimator moves: a second for each call, and a thousand more for the first."""
    now = [0.0]

    def estimator(scores, cost, structure, *, epsilon):
        now[0] += 1001 if not now[0] else 1
        return scores.sum(-1)

    monkeypatch.setattr(calling, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert [row.seconds for row in audit_two(estimator, epsilons=[1.0, 2.0], repetitions=2).rows] == [0.5, 0.5]


def test_progress_is_told():
    told: list[tuple[int, int]] = []
    audit_two(epsilons=[1.0], scale=[1, 2], repetitions=5, on_progress=lambda *numbers: told.append(numbers))
    assert told == [(done, 4) for done in range(5)]


def test_doubles_and_gradients_that_are_required_make_no_difference():
    scores, cost = (tensor.double().requires_grad_() for tensor in TWO)
    found = dl.audit(dl.direct_loss, scores, cost, dl.Choice(), epsilons=[0.5], repetitions=2000, generator=seeded())
    assert scores.grad is None
    for row in found.rows:
        assert away(row, truth(found, row)) < 5 + truth(found, row).norm().item() / row.bias_error
        assert row.mean.dtype == torch.float64


# Choosing from the results


def made(signal: float, seconds: float, epsilon: float = 1.0, bias: float = 0.1, **options) -> Measurement:
    settings = {"epsilon": epsilon, "sides": options.pop("sides", "both"), "samples": 1}
    given = {"target": "scores", "scale": 1.0, "bias_error": 0.001, **options}
    return Measurement(
        settings=settings,
        repetitions=10,
        mean=torch.zeros(2),
        bias=bias,
        deviation=1.0,
        cosine=signal,
        signal=signal,
        zero=0.0,
        seconds=seconds,
        **given,
    )


def made_audit(*rows: Measurement) -> Audit:
    exact = known(torch.ones(1), torch.ones(()), torch.tensor([3.0, 4.0]), torch.ones(()))
    return Audit("made", {1.0: exact}, list(rows))


def test_the_best_setting_has_the_highest_signal_for_the_root_of_its_time():
    quick, slow, poor = made(0.2, 1.0), made(0.5, 9.0), made(0.1, 1.0)
    found = made_audit(poor, slow, quick, made(9.0, 1.0, target="scale"), made(9.0, 1.0, scale=2.0))
    assert found.best(1.0) is quick  # .2 against .5 / 3
    assert found.best(1.0, overhead=0.4) is quick  # .2 / 1.18 against .5 / 3.07
    assert found.best(1.0, overhead=1.0) is slow  # .2 / 1.41 against .5 / 3.16
    assert found.best(1.0, target="scale").signal == 9
    with pytest.raises(ValueError, match=r"no row for the scores at scale 3.0; audited were \[1.0\]"):
        found.best(3.0)


def test_a_setting_whose_gradients_are_nan_is_not_the_best():
    good = made(0.2, 1.0)
    assert made_audit(made(math.nan, 1.0), good).best(1.0) is good


def test_samples_raise_a_small_signal_by_their_root():
    """What best() weighs them by."""
    found = audit(dl.direct_loss, CHOICE, epsilons=[0.05], sides=["both"], samples=[1, 4], repetitions=100_000)
    one, four = by_target(found, "scores")
    gradient = truth(found, one) / truth(found, one).norm()
    signal = [(row.mean * gradient).sum() / math.hypot(row.deviation, row.mean.norm()) for row in (one, four)]
    assert signal[1] / signal[0] == pytest.approx(2, rel=0.1)
    for row, measured in zip((one, four), signal, strict=True):
        assert row.signal == pytest.approx(measured.item(), rel=1e-3)


def powers(order: float, sides: str, sign: int = 1, **options) -> list[Measurement]:
    return [
        made(0.1, 1.0, sign * size, bias=0.1 * size**order, sides=sides, **options) for size in (0.25, 0.5, 1.0, 2.0)
    ]


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0])
def test_slopes_of_powers_are_their_exponents(order):
    found = made_audit(*powers(order, "both"), *powers(order, "one"), *powers(order, "one", -1))
    assert found.slopes().keys() == {("both", 1.0), ("one, ε > 0", 1.0), ("one, ε < 0", 1.0)}
    for slope, error in found.slopes().values():
        assert slope == pytest.approx(order)
        assert 0 < error < 1


def test_the_stated_error_of_an_order_is_the_spread_of_orders():
    draws = torch.randn(400, 6, generator=seeded())
    found = []
    for noise in draws.tolist():
        rows = [
            made(0.1, 1.0, size, bias=0.1 * size + 0.002 * one, bias_error=0.002, sides="one")
            for size, one in zip((0.5, 0.7, 1.0, 1.4, 2.0, 2.8), noise, strict=True)
        ]
        found.append(made_audit(*rows).slopes()["one, ε > 0", 1.0])
    slopes, errors = torch.tensor(found).unbind(1)
    assert abs(slopes.mean() - 1) < 5 * slopes.std() / 20
    # The relative error of a standard deviation of 400 is 1 / sqrt(800).
    assert slopes.std() / errors.mean() == pytest.approx(1, abs=5 / math.sqrt(800))


def test_what_is_lost_in_the_error_or_beyond_a_quarter_of_the_gradient_is_left_out():
    clean = powers(1.0, "both")
    lost = made(0.1, 1.0, 0.1, bias=0.4, bias_error=0.3)  # noise alone
    beyond = made(0.1, 1.0, 4.0, bias=1.3)  # the exact gradient has length 5
    assert made_audit(*clean, lost, beyond).slopes() == made_audit(*clean).slopes()
    kept = made(0.1, 1.0, 4.0, bias=1.2)
    assert made_audit(*clean, kept).slopes() != made_audit(*clean).slopes()


@pytest.mark.parametrize(
    "rows",
    [
        powers(1.0, "both")[:2],
        powers(1.0, "both", bias_error=10.0),
        powers(0.0, "both")[:1] * 4,
        [made(0.1, 1.0, size, bias=2.0) for size in (1.0, 2.0, 3.0)],
    ],
    ids=["two epsilons", "all noise", "one epsilon", "all too large"],
)
def test_an_order_that_cannot_be_told_is_nan(rows):
    ((slope, error),) = made_audit(*rows).slopes().values()
    assert math.isnan(slope)
    assert math.isnan(error)


def test_orders_are_told_apart_by_target_and_scale_and_not_at_scale_0():
    rows = [*powers(1.0, "both"), *powers(2.0, "both", target="scale"), *powers(3.0, "both", scale=0.0)]
    found = replace(made_audit(*rows), exact={scale: made_audit().exact[1.0] for scale in (0.0, 1.0)})
    assert {key: round(slope) for key, (slope, _) in found.slopes().items()} == {("both", 1.0): 1}
    assert found.slopes("scale").keys() == {("both", 1.0)}


# What is refused


def test_a_constant_cost_is_refused():
    with pytest.raises(ValueError, match="every structure has the same loss under this cost: there is no gradient"):
        dl.audit(dl.direct_loss, torch.zeros(2, 2), torch.ones(2, 2), dl.Matching())


def test_a_cost_that_is_constant_but_for_rounding_is_refused():
    rows, columns = torch.randn(3, 1, generator=seeded()), torch.randn(1, 3, generator=seeded(1))
    with pytest.raises(ValueError, match="every structure has the same loss"):
        dl.audit(dl.direct_loss, torch.zeros(3, 3), rows + columns, dl.Matching(), repetitions=10)


def returns(value):
    return lambda scores, cost, structure: value(scores)


REFUSED = {
    "repetitions is 1, expected a whole number, at least 2: one has no spread": {"repetitions": 1},
    "repetitions is 10.0, expected a whole number": {"repetitions": 10.0},
    "the grid is empty; give at least one scale, epsilon, side and number of samples": {"epsilons": []},
    "the grid is empty": {"sides": []},
    "the grid is empty;": {"samples": []},
    "the grid is empty; give": {"scale": []},
    "scale runs from -1.0 to -1.0; expected finite numbers >= 0": {"scale": [1.0, -1.0]},
    "epsilon is 0.0; expected a finite number other than 0": {"epsilons": [0.0]},
    "sides is 'two', expected 'one'": {"sides": ["two"]},
    "the loss returned shape (2, 2) for 2 instances; expected one for each, (2,), or their mean": {
        "loss": returns(lambda scores: scores)
    },
    "the loss returned shape (1,) for 2 instances; expected one for each, (2,), or their mean": {
        "loss": returns(lambda scores: scores.sum()[None])
    },
    "the loss returned float for 2 instances; expected one for each, (2,), or their mean": {
        "loss": returns(lambda scores: 1.0)
    },
    "the loss returned tuple for 2 instances": {"loss": returns(lambda scores: (scores[:, 0], scores))},
    "the loss carries no gradient: it must depend on the scores through": {
        "loss": returns(lambda scores: scores.detach()[:, 0])
    },
    "the loss carries no gradient": {"loss": returns(lambda scores: scores.detach().mean())},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused(message):
    options = {"loss": dl.direct_loss, "repetitions": 10, "epsilons": [1.0], **REFUSED[message]}
    with pytest.raises(ValueError, match=re.escape(message)):
        audit_two(**options)


def test_what_a_partial_has_fixed_is_not_part_of_the_grid():
    found = audit_two(partial(dl.direct_loss, epsilon=0.5, sides="both"), epsilons=[1.0, 2.0], samples=[1, 2])
    assert [row.settings for row in by_target(found, "scores")] == [{"samples": 1}, {"samples": 2}]
    plain = audit_two(epsilons=[0.5], sides=["both"], samples=[1, 2])
    assert torch.equal(found.rows[0].mean, plain.rows[0].mean)


@pytest.mark.parametrize("scale", [torch.tensor(0.5), np.float32(0.5), [0.5], torch.tensor([0.5])], ids=repr)
def test_a_scale_may_be_any_number_or_numbers(scale):
    found = audit_two(scale=scale, epsilons=[1.0])
    assert list(found.exact) == [0.5]
    assert torch.equal(found.rows[0].mean, audit_two(scale=0.5, epsilons=[1.0]).rows[0].mean)


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="samples is 0, expected at least 1"):
        audit_two(epsilons=[1.0], samples=[0])


def test_instances_that_cannot_be_enumerated_are_refused():
    with pytest.raises(ValueError, match="exact values are those of one instance"):
        dl.audit(dl.direct_loss, torch.zeros(2, 3), torch.tensor([0.0, 1.0, 1.0]), dl.Choice())
    with pytest.raises(ValueError, match="has 12,870 structures, more than the 5,040"):
        dl.audit(dl.direct_loss, torch.zeros(16), torch.arange(16.0), dl.Subset(8))
    with pytest.raises(ValueError, match="does not broadcast"):
        dl.audit(dl.direct_loss, torch.zeros(3), torch.zeros(4), dl.Choice())
    with pytest.raises(ValueError, match="scores hold 1 NaN"):
        dl.audit(dl.direct_loss, torch.tensor([0.0, math.nan]), torch.tensor([0.0, 1.0]), dl.Choice())


# Any loss, any layer, any setting


def test_a_layer_is_audited_with_the_linear_loss_behind_it():
    layer, loss = (partial(rule, samples=4) for rule in (dl.imle, dl.direct_loss))
    options = {"scale": 0.8, "repetitions": 300}
    one = audit(layer, CHOICE, settings={"step": [0.7], "sides": ["both"]}, **options)
    other = audit(loss, CHOICE, epsilons=[-0.7], sides=["both"], **options)
    assert [row.target for row in one.rows] == ["scores", "scale"]
    for mine, theirs in zip(one.rows, other.rows, strict=True):
        torch.testing.assert_close(mine.mean, theirs.mean)
        assert mine.settings == {"sides": "both", "step": 0.7}


def test_perturbed_shows_no_bias_and_identity_shows_one():
    found = audit(dl.perturbed, MATCHING, samples=[10], repetitions=20_000, noise=dl.Normal())
    assert all(row.bias < 4 * row.bias_error for row in found.rows)
    (row,) = audit(dl.identity, MATCHING, repetitions=10, noise=dl.Normal()).rows
    assert row.bias > 20 * row.bias_error
    assert row.deviation < 1e-6


def test_a_relaxation_takes_a_grid_of_its_settings():
    found = audit(dl.sinkhorn, MATCHING, settings={"temperature": [0.5, 2.0], "iterations": [5, 20]}, repetitions=2)
    assert [row.settings for row in found.rows] == [
        {"temperature": temperature, "iterations": iterations} for temperature in (0.5, 2.0) for iterations in (5, 20)
    ]
    assert "temperature=0.5, iterations=5" in repr(found)
    assert found.records()[0]["temperature"] == 0.5
    pytest.importorskip("matplotlib")
    assert found.plot().axes[0].get_xlabel() == "temperature"


def test_a_loss_that_wants_a_target_gets_the_structure_of_least_cost():
    targets = []

    def loss(scores, target, structure):
        targets.append(target)
        return -(scores * target).sum((-1, -2))

    scores, cost = problem(MATCHING)
    audit(loss, MATCHING, repetitions=2)
    assert torch.equal(targets[0], MATCHING.structure.solve(-cost))
    dl.audit(loss, scores, lambda y: (y * cost).sum((-1, -2)), MATCHING.structure, repetitions=2)
    assert torch.equal(targets[-1], targets[0])


def test_settings_that_a_rule_does_not_take_are_refused():
    with pytest.raises(ValueError, match="has 'heat', which the rule does not take"):
        audit(dl.sinkhorn, MATCHING, settings={"heat": [1.0]})
    with pytest.raises(TypeError, match="expected a list"):
        audit(dl.sinkhorn, MATCHING, settings={"temperature": 1.0})
