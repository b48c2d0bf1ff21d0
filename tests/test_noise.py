"""Noise has mean zero, the variance it says, and the distribution it is named after."""

import math

import pytest
import torch
from scipy import stats

import directloss as dl

DRAWS = 1_000_000
NOISES = {
    "gumbel": (dl.Gumbel(), stats.gumbel_r(loc=-0.5772156649015329), math.pi**2 / 6),
    "gumbel, variance 3": (
        dl.Gumbel(variance=3.0),
        stats.gumbel_r(loc=-0.5772156649015329 * math.sqrt(18) / math.pi, scale=math.sqrt(18) / math.pi),
        3.0,
    ),
    "normal": (dl.Normal(), stats.norm(), 1.0),
    "normal, variance 3": (dl.Normal(variance=3.0), stats.norm(scale=math.sqrt(3)), 3.0),
    "logistic": (dl.Logistic(), stats.logistic(), math.pi**2 / 3),
    "logistic, variance 0.5": (dl.Logistic(variance=0.5), stats.logistic(scale=math.sqrt(1.5) / math.pi), 0.5),
}
every_noise = pytest.mark.parametrize(("noise", "reference", "variance"), NOISES.values(), ids=NOISES.keys())
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@every_noise
@dtypes
def test_moments(noise, reference, variance, dtype, generator):
    draws = noise.sample((DRAWS,), generator=generator, dtype=dtype).double()
    kurtosis = float(reference.stats(moments="k"))
    assert float(reference.var()) == pytest.approx(variance)
    assert abs(draws.mean()) < 5 * math.sqrt(variance / DRAWS)
    # The variance of a sample variance is (kurtosis + 2) variance^2 / N.
    assert abs(draws.var() - variance) < 5 * variance * math.sqrt((kurtosis + 2) / DRAWS)


@every_noise
@dtypes
def test_distribution(noise, reference, variance, dtype, generator):
    draws = noise.sample((100_000,), generator=generator, dtype=dtype).double().numpy()
    assert stats.kstest(draws, reference.cdf).pvalue > 1e-4


@every_noise
@dtypes
def test_quantiles_are_scipys(noise, reference, variance, dtype):
    uniform = torch.cat([torch.logspace(-12, -2, 40), torch.linspace(0.02, 0.98, 49), 1 - torch.logspace(-2, -6, 20)])
    uniform = uniform.to(dtype)
    assert noise.quantile(uniform).dtype == dtype
    expected = torch.from_numpy(reference.ppf(uniform.double().numpy()))
    # In float32 the logarithm of a number near 1 loses digits to its rounding.
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(noise.quantile(uniform).double(), expected, **tolerance)


@every_noise
def test_densities_are_scipys_and_vanish_far_out(noise, reference, variance):
    value = torch.linspace(-40, 40, 401, dtype=torch.float64)
    expected = torch.from_numpy(reference.pdf(value.numpy()))
    torch.testing.assert_close(noise.density(value), expected, rtol=1e-9, atol=1e-300)
    assert noise.density(torch.tensor([-1e4, 1e4])).tolist() == [0, 0]


@every_noise
def test_the_density_is_the_slope_of_the_quantile_turned_over(noise, reference, variance):
    uniform = torch.linspace(0.001, 0.999, 200, dtype=torch.float64, requires_grad=True)
    value = noise.quantile(uniform)
    (slope,) = torch.autograd.grad(value.sum(), uniform)
    torch.testing.assert_close(noise.density(value.detach()) * slope, torch.ones_like(slope), rtol=1e-9, atol=0)


@every_noise
def test_the_score_is_the_slope_of_the_logarithm_of_the_density_turned_over(noise, reference, variance):
    value = torch.linspace(-3, 6, 50, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(noise.density(value).log().sum(), value)
    torch.testing.assert_close(noise.score(value.detach()), -slope)


@every_noise
def test_quantiles_of_uniform_draws_have_mean_zero_and_the_variance(noise, reference, variance):
    """By the midpoint rule, whose error is at most a few of its cells at the ends."""
    cells = 1 << 20
    draws = noise.quantile((torch.arange(cells, dtype=torch.float64) + 0.5) / cells)
    assert draws.mean().item() == pytest.approx(0, abs=20 * math.sqrt(variance) / cells)
    assert draws.square().mean().item() == pytest.approx(variance, abs=500 * variance / cells)


@every_noise
def test_the_quarters_of_a_draw_are_independent(noise, reference, variance, generator):
    """The kernel makes one number of each quarter of the same random bits: of two uniforms a pair of normals."""
    quarters = noise.sample((4, DRAWS // 4), generator=generator, dtype=torch.float32).double()
    for values in (quarters, quarters.abs(), quarters.square()):
        correlation = torch.corrcoef(values) - torch.eye(4)
        assert correlation.abs().max() < 5 / math.sqrt(DRAWS // 4)


def test_a_noise_of_ones_own_is_told_what_it_lacks():
    class Sign(dl.Noise):
        standard_variance = 1.0

        def _standard(self, shape, options):
            return torch.randn(shape, **options).sign()

    for name in ("quantile", "density"):
        with pytest.raises(NotImplementedError, match=f"Sign has no _standard_{name}, which exact values need"):
            getattr(Sign(), name)(torch.tensor(0.5))


@every_noise
def test_five_million_float32_draws_are_finite(noise, reference, variance, generator):
    draws = noise.sample((5_000_000,), generator=generator, dtype=torch.float32)
    assert torch.isfinite(draws).all()


@every_noise
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, None], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (5, 3, 3)], ids=str)
def test_shape_dtype_and_device(noise, reference, variance, dtype, shape, generator):
    draws = noise.sample(shape, generator=generator, dtype=dtype, device="cpu")
    assert draws.shape == shape
    assert draws.dtype == (dtype or torch.get_default_dtype())
    assert draws.device.type == "cpu"
    assert torch.isfinite(draws).all()
    if torch.cuda.is_available():
        assert noise.sample(shape, device="cuda").device.type == "cuda"


@every_noise
def test_randomness_comes_from_the_generator_alone(noise, reference, variance):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, same, other = (noise.sample((50,), generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    default = noise.sample((50,))
    assert not torch.equal(noise.sample((50,)), default)
    torch.set_rng_state(state)
    assert torch.equal(noise.sample((50,)), default)


places = pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 40), (0, 3), ()], ids=str)


@every_noise
@places
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_adding_noise_gives_the_numbers_of_drawing_it_first(noise, reference, variance, dtype, shape):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    for scale, samples in ((1.0, 1), (0.37, 3)):
        first, second = (torch.Generator().manual_seed(0) for _ in range(2))
        draws = noise.sample((samples, *shape), generator=first, dtype=dtype)
        added = noise.added_to(scores, scale, samples, second)
        expected = torch.addcmul(scores, torch.full((1,) * len(shape), scale, dtype=dtype), draws)
        torch.testing.assert_close(added, expected)
        assert torch.equal(first.get_state(), second.get_state())


@pytest.mark.parametrize("kind", [dl.Gumbel, dl.Normal, dl.Logistic])
@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), float("inf")])
def test_a_variance_must_be_positive(kind, variance):
    with pytest.raises(ValueError, match=f"variance is {variance}, expected a positive number, or None"):
        kind(variance=variance)


def test_noises_are_values():
    assert dl.Gumbel(variance=3.0) == dl.Gumbel(3.0)
    assert dl.Gumbel() != dl.Normal()
    with pytest.raises(AttributeError):
        dl.Gumbel().variance = 2.0


@pytest.mark.parametrize("kind", [dl.Gumbel, dl.Normal])
def test_a_subclass_that_draws_in_its_own_way_is_asked(kind):
    class Ones(kind):
        def sample(self, shape, **options):
            return torch.ones(tuple(shape))

    scores, out = torch.arange(6.0).reshape(2, 3), torch.empty(4, 2)
    assert torch.equal(Ones().added_to(scores, 2.0, 5), scores.expand(5, 2, 3) + 2)
    Ones().fill(out)
    assert torch.equal(out, torch.ones(4, 2))
    assert torch.equal(dl.perturb(scores, scale=2.0, noise=Ones()), scores.expand(1, 2, 3) + 2)
