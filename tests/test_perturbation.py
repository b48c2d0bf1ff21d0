"""``perturb`` is scores plus scale times noise, or their product with its exponential, and differentiable in both."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import directloss as dl

NOISES = {"gumbel": dl.Gumbel(), "normal": dl.Normal(), "logistic": dl.Logistic(), "gumbel-3": dl.Gumbel(variance=3.0)}
every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
both_forms = pytest.mark.parametrize("multiplicative", [False, True])


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def seeded(scores, scale=1.0, noise=NOISES["gumbel"], samples=1, seed=0, **options):
    return dl.perturb(scores, scale, noise, samples, generator=torch.Generator().manual_seed(seed), **options)


# What it is


@every_noise
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_it_is_scores_plus_scale_times_noise(noise, dtype, generator):
    scores = draw(2, 3, 4, dtype=dtype)
    gamma = noise.sample((5, 2, 3, 4), generator=generator, dtype=dtype)
    perturbed = seeded(scores, 0.3, noise, 5)
    assert perturbed.shape == (5, 2, 3, 4)
    assert perturbed.dtype == dtype
    plain = scores.double() + torch.tensor(0.3, dtype=dtype).double() * gamma.double()
    torch.testing.assert_close(perturbed.double(), plain, rtol=0, atol=20 * torch.finfo(dtype).eps)
    assert torch.equal(perturbed, dl.perturb(scores, 0.3, gamma))
    assert torch.equal(perturbed, dl.perturb(scores, 0.3, gamma, samples=5))


@every_noise
def test_multiplied_it_is_the_exponential_of_what_would_be_added(noise, generator):
    scores = draw(2, 3, 4)
    gamma = noise.sample((5, 2, 3, 4), generator=generator, dtype=torch.float64)
    perturbed = seeded(scores, 0.3, noise, 5, multiplicative=True)
    torch.testing.assert_close(perturbed, scores * torch.exp(0.3 * gamma - 0.3**2 / 2), rtol=1e-12, atol=0)


@every_noise
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_multiplied_every_sign_is_kept(noise, dtype, scale):
    scores = draw(50, 40, dtype=dtype)
    scores[:, :3] = torch.tensor([0.0, 1e-6, -1e-6])
    perturbed = seeded(scores, scale, noise, samples=20, multiplicative=True)
    assert torch.equal(perturbed.sign(), scores.sign().expand_as(perturbed))
    assert torch.isfinite(perturbed).all()
    # Added, the same noise turns many.
    assert not torch.equal(seeded(scores, scale, noise, samples=20).sign(), scores.sign().expand_as(perturbed))


@pytest.mark.parametrize("scale", [0.2, 0.7])
def test_multiplied_by_normal_noise_the_mean_is_kept(scale):
    scores, samples = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64), 400_000
    perturbed = seeded(scores, scale, dl.Normal(), samples, multiplicative=True)
    # A log-normal variable of mean 1 has the variance exp(scale^2) - 1.
    error = scores.abs() * math.sqrt(math.expm1(scale**2) / samples)
    assert ((perturbed.mean(0) - scores).abs() < 5 * error).all()


@both_forms
def test_scale_0_changes_nothing(multiplicative):
    scores = draw(2, 3)
    assert torch.equal(seeded(scores, 0.0, samples=4, multiplicative=multiplicative), scores.expand(4, 2, 3))


# The scale


@both_forms
def test_a_scale_for_each_instance_or_entry_is_that_of_its_own(multiplicative):
    scores, gamma = draw(2, 3, 4, 5), draw(6, 2, 3, 4, 5, seed=1)
    each, entry = draw(2, 3, seed=2).abs(), draw(2, 3, 4, 5, seed=3).abs()
    options = {"noise": gamma, "multiplicative": multiplicative}
    by_instance = dl.perturb(scores, each, entry_dims=2, **options)
    by_entry = dl.perturb(scores, entry, entry_dims=2, **options)
    assert torch.equal(by_entry, dl.perturb(scores, entry, **options))
    assert torch.equal(by_instance, dl.perturb(scores, each[..., None, None], **options))
    for a in range(2):
        for b in range(3):
            alone = dl.perturb(scores[a, b], each[a, b].item(), gamma[:, a, b], multiplicative=multiplicative)
            torch.testing.assert_close(by_instance[:, a, b], alone)
    torch.testing.assert_close(
        by_entry[:, 1, 2, 3, 4],
        dl.perturb(scores[1, 2, 3, 4:], entry[1, 2, 3, 4:], gamma[:, 1, 2, 3, 4:], multiplicative=multiplicative)[:, 0],
    )


def test_a_score_without_axes_is_perturbed_too():
    assert seeded(torch.tensor(2.0), samples=3).shape == (3,)


def test_only_the_first_part_is_perturbed():
    first, factor = draw(2, 3), draw(2, 3, 3, seed=1)
    perturbed, same = seeded((first, factor), 0.5, samples=4)
    assert torch.equal(perturbed, seeded(first, 0.5, samples=4))
    assert same is factor


# Gradients


SCALES = {
    "one": torch.tensor(0.7, dtype=torch.float64),
    "each instance": draw(2, seed=2).abs(),
    "each entry": draw(2, 3, seed=3).abs(),
    "a column": draw(1, 3, seed=4).abs(),
}


@both_forms
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES.keys())
def test_gradients_to_scores_and_scale_pass_gradcheck(scale, multiplicative):
    gamma = draw(4, 2, 3, seed=1)

    def perturbed(scores, scale):
        return dl.perturb(scores, scale, gamma, entry_dims=1, multiplicative=multiplicative)

    inputs = draw(2, 3).requires_grad_(), scale.clone().requires_grad_()
    assert gradcheck(perturbed, inputs)
    assert gradgradcheck(perturbed, inputs)


@both_forms
def test_of_scale_0_the_gradient_to_the_scale_is_that_of_the_noise(multiplicative):
    scores, gamma = draw(2, 3), draw(4, 2, 3, seed=1)
    scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    dl.perturb(scores, scale, gamma, multiplicative=multiplicative).sum().backward()
    expected = (scores * gamma).sum() if multiplicative else gamma.sum()
    torch.testing.assert_close(scale.grad, expected)


# Randomness, and what is refused


@both_forms
def test_noise_comes_from_the_generator_alone(multiplicative):
    torch.manual_seed(0)
    state, scores = torch.get_rng_state(), draw(3)
    first, same, other = (seeded(scores, seed=seed, multiplicative=multiplicative) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    default = dl.perturb(scores, multiplicative=multiplicative)
    torch.set_rng_state(state)
    assert torch.equal(dl.perturb(scores, multiplicative=multiplicative), default)


def test_every_instance_and_sample_gets_noise_of_its_own():
    assert len(seeded(torch.zeros(3, 4), samples=2).flatten().unique()) == 24


REFUSED = {
    "scale runs from -1.0 to -1.0; expected finite numbers >= 0": (ValueError, {"scale": -1.0}),
    "scale runs from nan to nan": (ValueError, {"scale": math.nan}),
    "scale runs from inf to inf": (ValueError, {"scale": math.inf}),
    "scale is str, expected a number or a tensor": (TypeError, {"scale": "1"}),
    r"scale broadcasts as \(3,\), which does not fit scores of shape \(2, 4\)": (ValueError, {"scale": torch.ones(3)}),
    "samples is 0, expected at least 1": (ValueError, {"samples": 0}),
    "samples is 1.5, expected an int": (TypeError, {"samples": 1.5}),
    r"noise is the class Gumbel; write dl.Gumbel\(\)": (TypeError, {"noise": dl.Gumbel}),
    "noise is 'gumbel', expected dl.Gumbel": (TypeError, {"noise": "gumbel"}),
    r"noise has shape \(2, 4\), expected \(samples, \*\(2, 4\)\)": (ValueError, {"noise": torch.zeros(2, 4)}),
    "with samples = 3": (ValueError, {"noise": torch.zeros(2, 2, 4), "samples": 3}),
    "scores are torch.int64, expected a floating-point dtype": (TypeError, {"scores": torch.zeros(2, 4).long()}),
    "scores: got str, expected a torch.Tensor": (TypeError, {"scores": "scores"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused(message):
    error, options = REFUSED[message]
    with pytest.raises(error, match=message):
        dl.perturb(**{"scores": torch.zeros(2, 4), **options})
