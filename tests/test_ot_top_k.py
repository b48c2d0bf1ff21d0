"""``ot_top_k`` against Sinkhorn's iterations for the transport that defines it."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import directloss as dl


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def transport(scores, k, epsilon, iterations=5000):
    """Xie et al., equation 5: n items to the places 0 and 1 at squared distance, by Sinkhorn, and what is "in"."""
    n = len(scores)
    cost = (scores.unsqueeze(-1) - torch.tensor([0.0, 1.0], dtype=torch.float64)) ** 2
    to = torch.tensor([n - k, k], dtype=torch.float64) / n
    f, g = torch.zeros(n, 1, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for _ in range(iterations):
        f = -torch.logsumexp(g - cost / epsilon, 1, keepdim=True) - torch.log(torch.tensor(float(n)))
        g = to.log() - torch.logsumexp(f - cost / epsilon, 0)
    return n * (f + g - cost / epsilon).exp()[:, 1]


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (8, 7)])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 10.0])
def test_it_is_the_plan_of_entropic_transport(n, k, temperature):
    scores = draw(n)
    ours = dl.ot_top_k(scores, dl.Subset(k), temperature)
    torch.testing.assert_close(ours, transport(scores, k, 2 * temperature), rtol=0, atol=1e-9)


def test_its_gradient_is_finite_differences_of_the_transport():
    scores, towards, step = draw(5), draw(5, seed=1), 1e-5
    leaf = scores.clone().requires_grad_()
    dl.ot_top_k(leaf, dl.Subset(2), 0.5).backward(towards)
    for entry, slope in zip(torch.eye(5, dtype=torch.float64), leaf.grad, strict=True):
        ahead, behind = (transport(scores + sign * step * entry, 2, 1.0, 500) for sign in (1, -1))
        torch.testing.assert_close(slope, ((ahead - behind) @ towards) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("temperature", [1e-7, 1e-3, 0.03, 1.0, 1e4])
@pytest.mark.parametrize("k", [1, 37, 499])
def test_entries_lie_within_zero_and_one_and_sum_to_k(temperature, k):
    scores = torch.cat([draw(3, 500), draw(2, 500).round(), torch.zeros(1, 500, dtype=torch.float64)])
    y = dl.ot_top_k(scores, dl.Subset(k), temperature)
    assert (y >= 0).all()
    assert (y <= 1).all()
    torch.testing.assert_close(y.sum(-1), torch.full((6,), float(k), dtype=torch.float64), rtol=1e-11, atol=0)


def test_towards_temperature_zero_it_is_the_best_subset_and_upwards_uniform():
    scores = draw(20, 9)
    torch.testing.assert_close(dl.ot_top_k(scores, dl.Subset(4), 1e-6), dl.Subset(4).solve(scores))
    torch.testing.assert_close(dl.ot_top_k(scores, dl.Subset(4), 1e9), torch.full_like(scores, 4 / 9))
    tied = torch.tensor([2.0, 1.0, 1.0, 0.0])
    torch.testing.assert_close(dl.ot_top_k(tied, dl.Subset(2), 1e-6), torch.tensor([1.0, 0.5, 0.5, 0.0]))


def test_each_instance_has_its_own_k_and_mask():
    scores, counts = draw(4, 5), torch.tensor([0, 1, 3, 5])
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    y = dl.ot_top_k(scores, dl.Subset(counts, mask))
    torch.testing.assert_close(y.sum(-1), counts.double())
    assert (y[~mask] == 0).all()
    torch.testing.assert_close(y[1, mask[1]], dl.ot_top_k(scores[1, mask[1]], dl.Subset(1)))
    assert torch.equal(y[2], mask[2].double())  # as many as there are
    leaf = scores.clone().requires_grad_()
    assert gradcheck(lambda s: dl.ot_top_k(s, dl.Subset(counts, mask), 0.5), leaf, atol=1e-6, rtol=1e-6)
    mapped = torch.func.vmap(lambda s, k, m: dl.ot_top_k(s, dl.Subset(k, m)))
    torch.testing.assert_close(mapped(scores, counts, mask), y)


def test_second_and_third_derivatives_are_exact():
    scores = draw(2, 4).requires_grad_()

    def first(s):
        (found,) = torch.autograd.grad(dl.ot_top_k(s, dl.Subset(2), 0.8).square().sum(), s, create_graph=True)
        return found

    assert gradgradcheck(lambda s: dl.ot_top_k(s, dl.Subset(2), 0.8), scores)
    assert gradgradcheck(first, scores)


def test_a_large_offset_changes_nothing():
    scores = draw(5, 8, dtype=torch.float32).mul(8).round()
    for offset in (2.0**20, -(2.0**20)):
        assert torch.equal(dl.ot_top_k(scores + offset, dl.Subset(3)), dl.ot_top_k(scores, dl.Subset(3)))


def test_one_of_one_is_taken():
    assert dl.ot_top_k(torch.tensor([[-3.0]]), dl.Subset(1)).tolist() == [[1.0]]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="cannot take k = 4 of n = 3"):
        dl.ot_top_k(torch.zeros(2, 3), dl.Subset(torch.tensor([1, 4])))
    with pytest.raises(ValueError, match="NaN or infinite"):
        dl.ot_top_k(torch.tensor([0.0, float("inf")]), dl.Subset(1))
