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
