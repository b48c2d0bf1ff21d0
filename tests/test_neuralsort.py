"""``neuralsort`` against the formula over all pairs and a sort, alone and of perturbed values."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import directloss as dl

NAN, INF = float("nan"), float("inf")


def all_pairs(scores, temperature=1.0, k=None):
    """Grover et al., equation 5, with the n x n matrix of distances."""
    n = scores.shape[-1]
    distances = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs().sum(-1)
    rows = [(n + 1 - 2 * i) * scores - distances for i in range(1, n + 1)][:k]
    return (torch.stack(rows, -2) / temperature).softmax(-1)


def gumbel_neuralsort(scores, temperature=1.0, k=None, noise_factor=1.0, **options):
    return dl.neuralsort(dl.perturb(scores, noise_factor, **options), temperature, k)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def value_and_gradient(function, scores, **options):
    """The result and the gradient of a random linear function of it."""
    leaf = scores.clone().requires_grad_()
    relaxed = function(leaf, **options)
    relaxed.backward(draw(*relaxed.shape, seed=9, dtype=relaxed.dtype))
    return relaxed.detach(), leaf.grad


SCORES = {
    "one": draw(4, 1),
    "two": draw(4, 2),
    "odd": draw(2, 3, 7),
    "even": draw(5, 20),
    "ties": draw(6, 12).round(),
    "all-equal": torch.full((2, 5), 0.3, dtype=torch.float64),
    "signed-zeros": torch.tensor([0.0, -0.0, 1.0, 0.0, -1.0], dtype=torch.float64),
    "wide": 100 * draw(5, 9),
}
every_score = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES.keys())


@every_score
@pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"temperature": 16, "k": 1}], ids=str)
def test_values_and_gradients_are_those_of_the_formula_over_all_pairs(scores, options):
    ours = value_and_gradient(dl.neuralsort, scores, **options)
    theirs = value_and_gradient(all_pairs, scores, **options)
    # Logits are sums of n distances: the rounding of their size is what is left.
    largest = max(10.0, scores.shape[-1] * scores.abs().max().item() / options.get("temperature", 1))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-15 * largest * scores.shape[-1])


def test_of_tied_scores_the_gradient_is_the_mean_over_both_orders():
    """sign(0) = 0 is half way between the two sides of the kink: the central difference."""
    tied, step, towards = torch.zeros(4, dtype=torch.float64), 1e-6, draw(4, 4, seed=9)
    _, gradient = value_and_gradient(dl.neuralsort, tied)
    for entry, ours in enumerate(gradient):
        ahead, behind = (
            dl.neuralsort(tied + sign * step * torch.eye(4, dtype=torch.float64)[entry]) for sign in (1, -1)
        )
        torch.testing.assert_close(ours, ((ahead - behind) * towards).sum() / (2 * step), rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [None, 2])
def test_gradients_pass_gradcheck(k):
    scores = draw(2, 5).requires_grad_()
    assert gradcheck(lambda scores: dl.neuralsort(scores, 0.7, k), scores)
    assert gradgradcheck(lambda scores: dl.neuralsort(scores, 0.7, k), scores)


def test_a_temperature_towards_zero_sorts():
    scores = draw(50, 8)
    order = scores.sort(-1, descending=True)
    relaxed = dl.neuralsort(scores, 1e-6)
    assert torch.equal(relaxed.argmax(-1), order.indices)
    torch.testing.assert_close((relaxed @ scores.unsqueeze(-1)).squeeze(-1), order.values)


def test_each_row_is_largest_at_its_rank_at_any_temperature():
    scores = draw(50, 8)
    for temperature in (0.1, 1.0, 30.0):
        assert torch.equal(dl.neuralsort(scores, temperature).argmax(-1), scores.argsort(-1, descending=True))


def test_a_high_temperature_gives_equal_entries():
    torch.testing.assert_close(dl.neuralsort(draw(3, 8), 1e9), torch.full((3, 8, 8), 1 / 8, dtype=torch.float64))


@every_score
def test_rows_are_distributions(scores):
    relaxed = dl.neuralsort(scores)
    assert relaxed.shape == (*scores.shape, scores.shape[-1])
    assert (relaxed >= 0).all()
    torch.testing.assert_close(relaxed.sum(-1), torch.ones_like(scores))


@pytest.mark.parametrize("k", [1, 3, 9])
def test_k_rows_are_the_first_of_all(k):
    scores = draw(2, 3, 9)
    assert torch.equal(dl.neuralsort(scores, 0.5, k), dl.neuralsort(scores, 0.5)[..., :k, :])


def test_entries_move_with_their_scores():
    scores, order = draw(3, 9), torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(dl.neuralsort(scores[:, order]), dl.neuralsort(scores)[..., order])


@pytest.mark.parametrize("offset", [2.0**20, -(2.0**23)])
def test_a_large_common_offset_changes_nothing_in_float32(offset):
    scores = draw(5, 40, dtype=torch.float32).mul(8).round()  # whole numbers, which the offset does not round
    # So must the noise be, for the sum not to be rounded before it is sorted.
    noise = dl.Gumbel().sample((2, 5, 40), generator=torch.Generator().manual_seed(0)).round()

    def perturbed(scores, temperature):
        return gumbel_neuralsort(scores, temperature, noise=noise)

    for function in (dl.neuralsort, perturbed):
        shifted = value_and_gradient(function, scores + offset, temperature=16.0)
        assert all(map(torch.equal, shifted, value_and_gradient(function, scores, temperature=16.0)))


@pytest.mark.parametrize("outlier", [1, 100])
def test_float32_differs_by_its_rounding(outlier):
    scores, options = draw(3, 800, dtype=torch.float32), {"temperature": 64.0, "k": 5}
    scores[:, 7] *= outlier
    exact = value_and_gradient(all_pairs, scores.double(), **options)
    largest_logit = 800 * scores.abs().max().item() / 64
    for ours, theirs in zip(value_and_gradient(dl.neuralsort, scores, **options), exact, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=6e-8 * largest_logit)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_only_in_the_end(dtype):
    scores = 100 * draw(2, 900, dtype=dtype)  # the sums of distances are beyond float16
    relaxed, gradient = value_and_gradient(dl.neuralsort, scores, temperature=1000.0, k=3)
    exact = value_and_gradient(all_pairs, scores.double(), temperature=1000.0, k=3)
    assert relaxed.dtype == gradient.dtype == dtype
    for ours, theirs in ((relaxed, exact[0]), (gradient, exact[1])):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2 * torch.finfo(dtype).eps)


def test_batch_axes_and_strides_change_nothing():
    scores = draw(2, 3, 6)
    result = value_and_gradient(dl.neuralsort, scores)
    for a, b in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        torch.testing.assert_close(dl.neuralsort(scores[a, b]), result[0][a, b])
    strided = scores.movedim(-1, 0).contiguous().movedim(0, -1)
    assert not strided.is_contiguous()
    torch.testing.assert_close(value_and_gradient(dl.neuralsort, strided), result)
    torch.testing.assert_close(dl.neuralsort(scores[0, 0].expand(5, 6)), result[0][0, 0].expand(5, 6, 6))


def test_an_empty_batch_is_fine():
    scores = torch.zeros(0, 3, requires_grad=True)
    relaxed = dl.neuralsort(scores, k=2)
    relaxed.sum().backward()
    assert relaxed.shape == (0, 2, 3)
    assert scores.grad.shape == (0, 3)
    assert gumbel_neuralsort(scores, samples=2).shape == (2, 0, 3, 3)


def seeded(scores, seed=0, **options):
    return gumbel_neuralsort(scores, generator=torch.Generator().manual_seed(seed), **options)


def test_gumbel_neuralsort_is_neuralsort_of_scores_plus_noise(generator):
    scores = draw(2, 3, 4)
    drawn = dl.Gumbel().sample((5, *scores.shape), generator=generator, dtype=torch.float64)
    options = {"temperature": 0.4, "k": 2}
    relaxed = seeded(scores, samples=5, noise_factor=0.3, **options)
    assert relaxed.shape == (5, 2, 3, 2, 4)
    torch.testing.assert_close(relaxed, all_pairs(scores + 0.3 * drawn, **options))
    assert torch.equal(relaxed, gumbel_neuralsort(scores, noise_factor=0.3, noise=drawn, **options))
    repeated = seeded(scores, samples=5, noise_factor=0, **options)
    assert torch.equal(repeated, dl.neuralsort(scores, **options).expand_as(repeated))


def test_equal_instances_get_different_noise():
    relaxed = seeded(torch.zeros(3, 4), samples=2).flatten(0, 1)
    assert len(relaxed.unique(dim=0)) == 6


def test_the_mean_first_row_at_temperature_zero_is_the_softmax_of_the_scores():
    """The largest of Gumbel-perturbed scores is a draw from their softmax."""
    scores, samples = draw(4), 20_000
    first = seeded(scores, temperature=1e-9, k=1, samples=samples).squeeze(-2)
    wanted = scores.softmax(-1)
    assert ((first.mean(0) - wanted).abs() < 5 * (wanted * (1 - wanted) / samples).sqrt()).all()


def test_noise_comes_from_the_generator_alone():
    torch.manual_seed(0)
    state, scores = torch.get_rng_state(), draw(3)
    assert torch.equal(seeded(scores), seeded(scores))
    assert not torch.equal(seeded(scores), seeded(scores, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


CHANGES = [{"temperature": 2.0}, {"k": 2}, {"noise_factor": 0.5}, {"noise": dl.Normal()}, {"samples": 2}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_option_changes_something(change):
    assert not torch.equal(seeded(draw(3)), seeded(draw(3), **change))


@pytest.mark.parametrize("function", [dl.neuralsort, gumbel_neuralsort])
@pytest.mark.parametrize(
    ("scores", "options", "error", "message"),
    [
        ([1.0], {}, TypeError, "got (list|float), expected a torch.Tensor"),
        (torch.arange(3), {}, TypeError, r"torch.int64, expected a floating-point dtype: call .float\(\)"),
        (torch.zeros(2, 0), {}, ValueError, "n = 0 entries"),
        (torch.tensor([0.0, NAN]), {}, ValueError, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.tensor([0.0, INF]), {}, ValueError, "NaN or infinite entries in torch.float32; give finite scores"),
        (torch.tensor([0.0, 1e-3]), {"temperature": 1e-41}, ValueError, "a higher temperature or a wider dtype"),
        (torch.zeros(3), {"temperature": 0}, ValueError, "temperature is 0, expected a positive number"),
        (torch.zeros(3), {"temperature": -1.0}, ValueError, "temperature is -1.0, expected a positive number"),
        (torch.zeros(3), {"temperature": NAN}, ValueError, "temperature is nan, expected a positive number"),
        (torch.zeros(3), {"k": 4}, ValueError, "cannot take k = 4 of n = 3 entries; lower k"),
        (torch.zeros(3), {"k": 0}, ValueError, "k is 0, expected at least 1"),
        (torch.zeros(3), {"k": 1.5}, TypeError, "k is 1.5, expected an int"),
    ],
)
def test_bad_input_is_refused(function, scores, options, error, message):
    with pytest.raises(error, match=message):
        function(scores, **options)


def test_one_number_is_no_values_to_sort():
    with pytest.raises(ValueError, match=r"shape \(\), but Subset needs at least 1 axes"):
        dl.neuralsort(torch.tensor(1.0))


def test_the_largest_scores_that_are_taken_give_finite_results():
    largest = torch.finfo(torch.float32).max / (3 * 4)
    assert torch.isfinite(dl.neuralsort(0.99 * largest * torch.tensor([-1.0, 0.0, 0.0, 1.0]))).all()
    with pytest.raises(ValueError, match="NaN or infinite"):
        dl.neuralsort(1.01 * largest * torch.tensor([-1.0, 0.0, 0.0, 1.0]))


def test_samples_are_at_least_one():
    with pytest.raises(ValueError, match="samples is 0, expected at least 1"):
        gumbel_neuralsort(torch.zeros(3), samples=0)
