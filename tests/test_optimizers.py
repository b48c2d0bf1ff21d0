"""Muon against a singular value decomposition and torch's Adam; the rate over training."""

import copy

import pytest
import torch
from torch import nn

from directloss.experiments.optimizers import Muon, orthogonal_factor, rate


def filters(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(4, 12), (12, 4), (6, 6)])
def test_the_orthogonal_factor_has_the_singular_vectors_and_values_near_one(shape):
    matrix = filters(*shape).double()
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.mT @ orthogonal_factor(matrix, steps=5) @ v.mT
    diagonal = found.diagonal()
    torch.testing.assert_close(found, diagonal.diag(), atol=1e-6, rtol=0)
    assert ((diagonal > 0.6) & (diagonal < 1.3)).all()


def test_a_zero_gradient_moves_no_filter():
    weight = nn.Parameter(filters(4, 3, 2, 2))
    before, weight.grad = weight.detach().clone(), torch.zeros_like(weight)
    Muon([weight], lr=0.5).step()
    torch.testing.assert_close(weight.detach(), before)


def test_filters_turn_by_the_rate_and_keep_their_norm():
    weight = nn.Parameter(filters(6, 3, 2, 2).to(memory_format=torch.channels_last))
    before, weight.grad = weight.detach().clone(), filters(6, 3, 2, 2, seed=1)
    Muon([weight], lr=0.1).step()
    u, _, v = torch.linalg.svd(weight.grad.flatten(1), full_matrices=False)
    turn = orthogonal_factor(weight.grad.flatten(1))
    assert ((u @ v) * turn).sum() / ((u @ v).norm() * turn.norm()) > 0.95
    expected = before - 0.1 * before.norm() / turn.norm() * turn.view_as(before)
    torch.testing.assert_close(weight.detach(), expected * before.norm() / expected.norm())
    torch.testing.assert_close(weight.norm(), before.norm())


def test_the_size_of_the_gradient_does_not_matter():
    found = []
    for factor in (1.0, 1e-6):
        weight = nn.Parameter(filters(6, 3, 2, 2))
        optimizer = Muon([weight], lr=0.1)
        for seed in (1, 2, 3):
            weight.grad = factor * filters(6, 3, 2, 2, seed=seed)
            optimizer.step()
        found.append(weight.detach())
    torch.testing.assert_close(*found)


def test_what_is_not_a_filter_moves_as_with_adam():
    one, two = nn.Parameter(filters(5)), nn.Parameter(filters(5))
    ours, adam = Muon([one], lr=0.5, others=0.1), torch.optim.Adam([two], lr=0.05)
    for seed in range(4):
        one.grad = two.grad = filters(5, seed=seed)
        ours.step()
        adam.step()
    torch.testing.assert_close(one, two)


def test_muon_goes_on_from_its_state():
    def steps(optimizer, weights, seeds):
        for seed in seeds:
            for weight in weights:
                weight.grad = filters(*weight.shape, seed=seed)
            optimizer.step()

    weights = [nn.Parameter(filters(4, 3, 2, 2)), nn.Parameter(filters(4))]
    optimizer = Muon(weights, lr=0.1)
    steps(optimizer, weights, [1, 2])
    others = [nn.Parameter(weight.detach().clone()) for weight in weights]
    resumed = Muon(others, lr=0.7)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(optimizer, weights, [3, 4])
    steps(resumed, others, [3, 4])
    for one, other in zip(weights, others, strict=True):
        assert torch.equal(one, other)


def test_muon_refuses_what_it_does_not_do():
    weight = nn.Parameter(filters(4, 3, 2, 2))
    with pytest.raises(ValueError, match="filters keep their norm: expected 0"):
        Muon([weight], lr=0.1, weight_decay=1e-4)
    with pytest.raises(TypeError, match="takes no closure"):
        Muon([weight], lr=0.1).step(lambda: None)


def test_the_rate_rises_and_falls():
    assert [rate(done, 0.0) for done in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert [rate(done, 0.2) for done in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])
