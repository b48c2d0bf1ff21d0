"""``sinkhorn`` against the textbook iteration, alone and of perturbed scores (Gumbel-Sinkhorn)."""

import math

import pytest
import torch

import directloss as dl

NAN, INF = float("nan"), float("inf")


def textbook(scores, temperature=1.0, iterations=20):
    """Normalise the rows, then the columns, of exp(scores / temperature), in log space."""
    log_p = scores / temperature
    for _ in range(iterations):
        log_p = log_p.log_softmax(-1).log_softmax(-2)
    return log_p.exp()


def sinkhorn(scores, temperature=1.0, iterations=20):
    return dl.sinkhorn(scores, dl.Matching(), temperature, iterations)


def gumbel_sinkhorn(scores, temperature=1.0, iterations=20, noise_factor=1.0, **options):
    return sinkhorn(dl.perturb(scores, noise_factor, **options), temperature, iterations)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def value_and_gradient(function, scores, **options):
    """The result and the gradient of a random linear function of it."""
    leaf = scores.clone().requires_grad_()
    relaxed = function(leaf, **options)
    relaxed.backward(draw(*relaxed.shape, seed=9, dtype=relaxed.dtype))
    return relaxed.detach(), leaf.grad


@pytest.mark.parametrize("size", [1, 2, 7, 20])
@pytest.mark.parametrize("spread", [1, 30, 500])  # at 500 nearly every exponential underflows
@pytest.mark.parametrize("options", [{}, {"iterations": 1}, {"temperature": 0.3, "iterations": 7}], ids=str)
def test_values_and_gradients_are_those_of_the_textbook_iteration(size, spread, options):
    scores = spread * draw(6, size, size)
    ours = value_and_gradient(sinkhorn, scores, **options)
    theirs = value_and_gradient(textbook, scores, **options)
    # Potentials of the size of the scores cancel in the exponent: their rounding is what is left.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14 * max(spread, 10))


@pytest.mark.parametrize("spread", [1, 500])
def test_float32_differs_by_its_rounding(spread):
    scores = (spread * draw(6, 12, 12)).float()
    exact = value_and_gradient(textbook, scores.double())
    for ours, theirs in zip(value_and_gradient(sinkhorn, scores), exact, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-6 * max(spread / 10, 1))


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_gradients_pass_gradcheck(iterations):
    scores = draw(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: dl.sinkhorn(scores, dl.Matching(), 0.7, iterations), scores)


def test_columns_sum_to_one_and_rows_come_closer_with_every_iteration():
    scores = draw(10, 6, 6)
    away = []
    for iterations in (1, 2, 5, 20, 200):
        relaxed = sinkhorn(scores, iterations=iterations)
        assert (relaxed > 0).all()
        torch.testing.assert_close(relaxed.sum(-2), torch.ones(10, 6, dtype=torch.float64))
        away.append((relaxed.sum(-1) - 1).abs().max().item())
    assert away == sorted(away, reverse=True)
    assert away[-1] < 1e-12 < away[2]


def test_a_temperature_towards_zero_gives_the_best_matching():
    scores = draw(20, 5, 5)
    best = dl.Matching().solve(scores)
    for temperature in (1.0, 0.1, 0.01, 2e-3):
        relaxed = sinkhorn(scores, temperature, iterations=5000)
        # It maximises <scores, P> + temperature * entropy(P), and the entropy is between 0 and n log n.
        missing = (scores * (best - relaxed)).sum((-1, -2))
        assert missing.max() < temperature * 5 * math.log(5)
    assert torch.equal(relaxed.round(), best)


def test_batch_axes_and_strides_change_nothing():
    scores = draw(2, 3, 4, 4)
    result = value_and_gradient(sinkhorn, scores)
    assert result[0].shape == scores.shape
    for a, b in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        assert torch.equal(sinkhorn(scores[a, b]), result[0][a, b])
    for strided in (scores.mT.contiguous().mT, scores.movedim(0, -1).contiguous().movedim(-1, 0)):
        assert not strided.is_contiguous()
        relaxed = sinkhorn(strided.requires_grad_())
        relaxed.mT.contiguous().backward(draw(*scores.shape, seed=9).mT)  # a gradient with strides of its own
        assert torch.equal(relaxed, result[0])
        assert torch.equal(strided.grad, result[1])
    assert torch.equal(sinkhorn(scores[0, 0].expand(5, 4, 4)), result[0][:1, :1].expand(5, 1, 4, 4)[:, 0])


def test_an_empty_batch_is_fine():
    scores = torch.zeros(0, 3, 3, requires_grad=True)
    relaxed = sinkhorn(scores)
    relaxed.sum().backward()
    assert relaxed.shape == scores.grad.shape == (0, 3, 3)
    assert gumbel_sinkhorn(scores, samples=2).shape == (2, 0, 3, 3)


@pytest.mark.parametrize("shared", [True, False])
def test_forbidden_pairs_get_nothing_and_the_rest_is_normalised_without_them(shared):
    scores, forbidden = draw(5, 4, 4), torch.rand(5, 4, 4, generator=torch.Generator().manual_seed(1)) < 0.4
    forbidden[:, range(4), range(4)] = False  # so that a matching is left
    forbidden = forbidden[0] if shared else forbidden

    def allowed(scores):
        return dl.sinkhorn(scores, dl.Matching(forbidden), 0.7, 30)

    ours = value_and_gradient(allowed, scores)
    theirs = value_and_gradient(lambda scores: textbook(scores.masked_fill(forbidden, -1e6), 0.7, 30), scores)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert (ours[0][forbidden.expand_as(scores)] == 0).all()
    assert (ours[1][forbidden.expand_as(scores)] == 0).all()
    torch.testing.assert_close(ours[0].sum(-2), torch.ones(5, 4, dtype=torch.float64))


def test_structures_that_it_does_not_relax_are_named():
    for wrong in (dl.Subset(1), dl.Choice(), dl.custom(lambda scores: scores > 0, 2)):
        with pytest.raises(TypeError, match=r"sinkhorn does not relax .*; it takes Matching"):
            dl.sinkhorn(torch.zeros(3, 3), wrong)
    with pytest.raises(TypeError, match=r"structure is the class Matching; write dl.Matching\(...\)"):
        dl.sinkhorn(torch.zeros(3, 3), dl.Matching)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_runs_in_torch(dtype):
    scores = draw(4, 3, 3, dtype=dtype)
    relaxed, gradient = value_and_gradient(sinkhorn, scores)
    exact = value_and_gradient(textbook, scores.double())
    assert relaxed.dtype == gradient.dtype == dtype
    for ours, theirs in ((relaxed, exact[0]), (gradient, exact[1])):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=30 * torch.finfo(dtype).eps)


def test_two_threads_give_the_same_bits():
    results = []
    for threads in (1, 2):
        dl.set_num_threads(threads)
        results.append(value_and_gradient(sinkhorn, draw(200, 12, 12, dtype=torch.float32)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def seeded(scores, seed=0, **options):
    return gumbel_sinkhorn(scores, generator=torch.Generator().manual_seed(seed), **options)


def test_gumbel_sinkhorn_is_sinkhorn_of_scores_plus_noise(generator):
    scores = draw(2, 3, 4, 4)
    drawn = dl.Gumbel().sample((5, *scores.shape), generator=generator, dtype=torch.float64)
    relaxed = seeded(scores, samples=5, noise_factor=0.3)
    assert relaxed.shape == (5, 2, 3, 4, 4)
    torch.testing.assert_close(relaxed, sinkhorn(scores + 0.3 * drawn), rtol=0, atol=1e-14)  # a fused multiply-add
    assert torch.equal(relaxed, gumbel_sinkhorn(scores, noise_factor=0.3, noise=drawn))
    assert torch.equal(seeded(scores, samples=5, noise_factor=0), sinkhorn(scores).expand(5, 2, 3, 4, 4))


def test_noise_comes_from_the_generator_alone():
    torch.manual_seed(0)
    state, scores = torch.get_rng_state(), draw(3, 3)
    assert torch.equal(seeded(scores), seeded(scores))
    assert not torch.equal(seeded(scores), seeded(scores, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


CHANGES = [{"temperature": 2.0}, {"iterations": 2}, {"noise_factor": 0.5}, {"noise": dl.Normal()}, {"samples": 2}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_option_changes_something(change):
    assert not torch.equal(seeded(draw(3, 3)), seeded(draw(3, 3), **change))


@pytest.mark.parametrize("function", [sinkhorn, gumbel_sinkhorn])
@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (torch.zeros(2, 3), {}, r"\(.*2, 3\), expected square matrices \(..., n, n\)"),
        (torch.zeros(2, 0, 0), {}, "expected square matrices"),
        (torch.tensor([[0.0, NAN], [0, 0]]), {}, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.tensor([[0.0, INF], [0, 0]]), {}, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.zeros(2, 2), {"temperature": 0}, "temperature is 0, expected a positive number"),
        (torch.zeros(2, 2), {"temperature": -1.0}, "temperature is -1.0, expected a positive number"),
        (torch.zeros(2, 2), {"temperature": NAN}, "temperature is nan, expected a positive number"),
        (torch.zeros(2, 2), {"iterations": 0}, "iterations is 0, expected a whole number, at least 1"),
    ],
    ids=[
        "rectangular",
        "no-entries",
        "nan",
        "inf",
        "temperature-0",
        "temperature-negative",
        "temperature-nan",
        "no-it",
    ],
)
def test_bad_input_is_refused(function, scores, options, message):
    with pytest.raises(ValueError, match=message):
        function(scores, **options)


def test_scores_are_square_floating_point_matrices_and_samples_at_least_one():
    with pytest.raises(ValueError, match="expected square matrices"):
        sinkhorn(torch.zeros(3))
    with pytest.raises(TypeError, match=r"torch.int64, expected a floating-point dtype: call .float\(\)"):
        sinkhorn(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="samples is 0, expected at least 1"):
        gumbel_sinkhorn(torch.zeros(2, 2), samples=0)
