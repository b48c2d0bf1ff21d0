"""``relaxed_subset`` against the recursion with given draws, ``Subset`` and sampling without replacement."""

from itertools import permutations

import pytest
import torch
from torch.autograd import gradcheck

import directloss as dl

NAN, INF = float("nan"), float("inf")


def recursion(keys, k, temperature=1.0):
    """Xie & Ermon, section 3.2, word for word."""
    total = torch.zeros_like(keys)
    for _ in range(k):
        p = (keys / temperature).softmax(-1)
        total = total + p
        keys = keys + torch.log(1 - p)
    return total


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def without_noise(scores, k, temperature=1.0):
    return dl.relaxed_subset(scores, dl.Subset(k), temperature)


def sampled(scores, k, temperature=1.0, noise_factor=1.0, **options):
    """RelaxSubSample: of perturbed scores."""
    return dl.relaxed_subset(dl.perturb(scores, noise_factor, **options), dl.Subset(k), temperature)


def value_and_gradient(function, scores, k, **options):
    """The result and the gradient of a random linear function of it."""
    leaf = scores.clone().requires_grad_()
    relaxed = function(leaf, k, **options)
    relaxed.backward(draw(*relaxed.shape, seed=9, dtype=relaxed.dtype))
    return relaxed.detach(), leaf.grad


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (2, 2), (7, 3), (7, 7), (50, 5)])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 16.0])
def test_values_and_gradients_are_those_of_the_recursion(n, k, temperature):
    ours = value_and_gradient(without_noise, draw(2, 3, n), k, temperature=temperature)
    theirs = value_and_gradient(recursion, draw(2, 3, n), k, temperature=temperature)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spread", [1, 10, 50])
def test_float32_differs_by_its_rounding_even_where_a_probability_rounds_to_one(spread):
    scores = (spread * draw(20, 10)).float()
    assert (scores.softmax(-1) == 1).any() == (spread > 1)
    exact = value_and_gradient(without_noise, scores.double(), 4)
    for ours, theirs in zip(value_and_gradient(without_noise, scores, 4), exact, strict=True):
        assert ours.dtype == torch.float32
        # Each of four steps rounds logits of this size.
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=4 * 6e-8 * 4 * spread)


def test_gaps_beyond_every_exponential_keep_values_and_gradients_finite():
    for dtype in (torch.float32, torch.float64):
        scores = torch.tensor([1e6, -1e6, 0.0, 3.0, 3.0], dtype=dtype)
        relaxed, gradient = value_and_gradient(without_noise, scores, 5, temperature=1e-3)
        torch.testing.assert_close(relaxed.sum().item(), 5.0)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("n", "k"), [(2, 2), (5, 1), (5, 3)])
def test_gradients_pass_gradcheck(n, k):
    noise = draw(2, 3, n, seed=1)
    scores = draw(3, n).requires_grad_()
    assert gradcheck(lambda scores: sampled(scores, k, 0.7, noise=noise), scores)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_temperature_towards_zero_gives_the_best_subset(k):
    scores = draw(200, 8)
    away = [
        (without_noise(scores, k, temperature) - dl.Subset(k).solve(scores)).abs().sum(-1).median()
        for temperature in (1.0, 0.1, 0.01, 1e-3, 1e-4)
    ]
    assert away == sorted(away, reverse=True)
    assert away[-1] < 1e-9


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_high_temperature_gives_equal_entries(k):
    torch.testing.assert_close(without_noise(draw(3, 8), k, 1e9), torch.full((3, 8), k / 8, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("temperature", [0.01, 1.0, 64.0])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_entries_are_not_negative_and_sum_to_k(dtype, temperature, k):
    relaxed = seeded(10 * draw(6, 40, dtype=dtype), k=k, temperature=temperature, samples=3)
    assert relaxed.shape == (3, 6, 40)
    assert (relaxed >= 0).all()
    torch.testing.assert_close(relaxed.sum(-1), torch.full((3, 6), float(k), dtype=dtype))


def test_an_entry_exceeds_one_where_the_recursion_says_so():
    """Two of two should be (1, 1). At temperature 1 the second softmax is even: sigmoid(1) + 1 / 2 is more."""
    one = torch.tensor(1.0, dtype=torch.float64)
    relaxed = without_noise(torch.stack([one, one * 0]), 2)
    torch.testing.assert_close(relaxed, torch.stack([one.sigmoid() + 0.5, (-one).sigmoid() + 0.5]))


def test_entries_move_with_their_scores():
    scores, order = draw(3, 9), torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(without_noise(scores[:, order], 4), without_noise(scores, 4)[:, order])


@pytest.mark.parametrize("offset", [2.0**20, -(2.0**23)])
def test_a_large_common_offset_changes_nothing_in_float32(offset):
    scores = draw(5, 9, dtype=torch.float32).mul(8).round()  # whole numbers, which the offset does not round
    # So must the noise be, for the sum not to be rounded before it is relaxed.
    noise = dl.Gumbel().sample((2, 5, 9), generator=torch.Generator().manual_seed(0)).round()
    assert torch.equal(sampled(scores + offset, 4, noise=noise), sampled(scores, 4, noise=noise))
    assert torch.equal(without_noise(scores + offset, 4), without_noise(scores, 4))


def test_batch_axes_and_strides_change_nothing():
    scores = draw(2, 3, 6)
    result = value_and_gradient(without_noise, scores, 2)
    for a, b in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        torch.testing.assert_close(without_noise(scores[a, b], 2), result[0][a, b])
    strided = scores.movedim(-1, 0).contiguous().movedim(0, -1)
    assert not strided.is_contiguous()
    torch.testing.assert_close(value_and_gradient(without_noise, strided, 2), result)


def test_an_empty_batch_is_fine():
    scores = torch.zeros(0, 3, requires_grad=True)
    relaxed = sampled(scores, 2, samples=4)
    relaxed.sum().backward()
    assert relaxed.shape == (4, 0, 3)
    assert scores.grad.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_differs_by_its_rounding(dtype):
    scores = draw(4, 6, dtype=dtype)
    relaxed, gradient = value_and_gradient(without_noise, scores, 2)
    exact = value_and_gradient(without_noise, scores.double(), 2)
    assert relaxed.dtype == gradient.dtype == dtype
    for ours, theirs in ((relaxed, exact[0]), (gradient, exact[1])):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=10 * torch.finfo(dtype).eps)


def test_forbidden_entries_get_nothing_and_the_rest_is_relaxed_without_them():
    scores, mask = draw(2, 3, 6), torch.tensor([True, False, True, True, False, True])

    def masked(scores, k):
        return dl.relaxed_subset(scores, dl.Subset(k, mask=mask), 0.7)

    relaxed, gradient = value_and_gradient(masked, scores, 2)
    assert (relaxed[..., ~mask] == 0).all()
    assert (gradient[..., ~mask] == 0).all()
    torch.testing.assert_close(relaxed[..., mask], recursion(scores[..., mask], 2, 0.7))
    towards = draw(2, 3, 6, seed=9)[..., mask]
    leaf = scores[..., mask].requires_grad_()
    recursion(leaf, 2, 0.7).backward(towards)
    torch.testing.assert_close(gradient[..., mask], leaf.grad)


def test_structures_that_it_does_not_relax_are_named():
    for wrong in (dl.Choice(), dl.Matching(), dl.Bits()):
        with pytest.raises(TypeError, match=r"relaxed_subset does not relax .*; it takes Subset"):
            dl.relaxed_subset(torch.zeros(3, 3), wrong)
    with pytest.raises(TypeError, match="one k for all instances"):
        dl.relaxed_subset(torch.zeros(2, 3), dl.Subset(torch.tensor([1, 2])))


def seeded(scores, seed=0, **options):
    return sampled(scores, generator=torch.Generator().manual_seed(seed), **{"k": 2, **options})


def test_noise_is_added_to_the_scores(generator):
    scores = draw(2, 3, 4)
    drawn = dl.Gumbel().sample((5, *scores.shape), generator=generator, dtype=torch.float64)
    relaxed = seeded(scores, temperature=0.4, samples=5, noise_factor=0.3)
    torch.testing.assert_close(relaxed, recursion(scores + 0.3 * drawn, 2, 0.4))
    assert torch.equal(relaxed, sampled(scores, 2, 0.4, noise_factor=0.3, noise=drawn))


def test_the_mean_at_temperature_zero_is_that_of_sampling_without_replacement():
    scores, samples = draw(4), 20_000
    p, wanted = scores.softmax(-1), torch.zeros(4, dtype=torch.float64)
    for first, second in permutations(range(4), 2):
        wanted[[first, second]] += p[first] * p[second] / (1 - p[first])
    taken = seeded(scores, temperature=1e-9, samples=samples)
    assert ((taken.mean(0) - wanted).abs() < 5 * (wanted * (1 - wanted) / samples).sqrt()).all()


def test_equal_instances_get_different_noise():
    assert len(seeded(torch.zeros(3, 4), samples=2).flatten(0, 1).unique(dim=0)) == 6


def test_noise_comes_from_the_generator_alone():
    torch.manual_seed(0)
    state, scores = torch.get_rng_state(), draw(3)
    assert torch.equal(seeded(scores), seeded(scores))
    assert not torch.equal(seeded(scores), seeded(scores, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


CHANGES = [{"temperature": 2.0}, {"k": 1}, {"noise_factor": 0.5}, {"noise": dl.Normal()}, {"samples": 2}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_option_changes_something(change):
    assert not torch.equal(seeded(draw(3)), seeded(draw(3), **change))


@pytest.mark.parametrize(
    ("scores", "options", "error", "message"),
    [
        ([1.0, 2.0], {}, TypeError, "got (list|float), expected a torch.Tensor"),
        (torch.arange(3), {}, TypeError, r"torch.int64, expected a floating-point dtype: call .float\(\)"),
        (torch.zeros(2, 0), {}, ValueError, "cannot take k = 2 of n = 0 entries"),
        (torch.tensor([0.0, NAN]), {}, ValueError, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.tensor([0.0, INF]), {}, ValueError, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.tensor([0.0, 1.0]), {"temperature": 1e-41}, ValueError, "a higher temperature or a wider dtype"),
        (torch.zeros(3), {"temperature": 0}, ValueError, "temperature is 0, expected a positive number"),
        (torch.zeros(3), {"temperature": -1.0}, ValueError, "temperature is -1.0, expected a positive number"),
        (torch.zeros(3), {"temperature": NAN}, ValueError, "temperature is nan, expected a positive number"),
        (torch.zeros(3), {"k": 4}, ValueError, "cannot take k = 4 of n = 3 entries; lower k"),
        (torch.zeros(3), {"k": 0}, ValueError, "k is 0, expected at least 1"),
        (torch.zeros(3), {"k": 1.5}, TypeError, "k is 1.5, expected an int"),
        (torch.zeros(3), {"samples": 0}, ValueError, "samples is 0, expected at least 1"),
    ],
)
def test_bad_input_is_refused(scores, options, error, message):
    functions = (sampled,) if "samples" in options else (sampled, without_noise)
    for function in functions:
        with pytest.raises(error, match=message):
            function(scores, **{"k": 2, **options})


def test_one_number_has_no_subsets():
    with pytest.raises(ValueError, match=r"shape \(\), but Subset needs at least 1 axes"):
        without_noise(torch.tensor(1.0), 1)
