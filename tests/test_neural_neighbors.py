"""``neural_neighbors`` against the paper's loop."""

import pytest
import torch

import directloss as dl


def plain_loop(scores, k, temperature):
    """Ploetz and Roth, equations 8 to 10."""
    alpha, rows = scores, []
    for _ in range(k):
        w = (alpha / temperature).softmax(-1)
        rows.append(w)
        alpha = alpha + torch.log1p(-w)
    return torch.stack(rows, -2)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_values_and_gradients_are_those_of_the_loop(k, temperature):
    results = []
    for rule in (lambda s: dl.neural_neighbors(s, dl.Subset(k), temperature), lambda s: plain_loop(s, k, temperature)):
        scores = draw(4, 7).requires_grad_()
        y = rule(scores)
        assert y.shape == (4, k, 7)
        y.backward(draw(4, k, 7, seed=1))
        results.append((y.detach(), scores.grad))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_their_sum_is_the_relaxed_subset():
    scores = draw(4, 7)
    neighbors = dl.neural_neighbors(scores, dl.Subset(3), 0.3)
    torch.testing.assert_close(neighbors.sum(-2), dl.relaxed_subset(scores, dl.Subset(3), 0.3))
    torch.testing.assert_close(neighbors.sum(-1), torch.ones(4, 3, dtype=torch.float64))


def test_towards_temperature_zero_row_j_is_the_jth_largest():
    scores = draw(10, 9)
    neighbors = dl.neural_neighbors(scores, dl.Subset(9), 1e-4)
    assert torch.equal(neighbors.argmax(-1), scores.argsort(-1, descending=True))
    torch.testing.assert_close(neighbors.amax(-1), torch.ones(10, 9, dtype=torch.float64))


def test_what_is_masked_is_no_neighbour():
    mask = torch.tensor([True, False, True, True])
    neighbors = dl.neural_neighbors(draw(2, 4), dl.Subset(2, mask))
    assert (neighbors[..., ~mask] == 0).all()
    torch.testing.assert_close(neighbors[..., mask], dl.neural_neighbors(draw(2, 4)[:, mask], dl.Subset(2)))


def test_one_k_for_all():
    with pytest.raises(TypeError, match=r"neural_neighbors takes Subset\(k\) with one k"):
        dl.neural_neighbors(torch.zeros(2, 3), dl.Subset(torch.tensor([1, 2])))
