"""Data of instances under ``torch.func``: vmap maps them as it maps the scores."""

import pytest
import torch
from tables import direct_loss
from torch.func import grad, vmap

import directloss as dl


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MAKES = {
    "lengths": (lambda data: dl.Chain(lengths=data), torch.tensor([0, 1, 4, 2]), (4, 3)),
    "forbidden": (lambda data: dl.Chain(forbidden=data), drawn(4, 3, 3) > 1, (4, 3)),
    "mask": (lambda data: dl.Chain(mask=data), drawn(4, 4, 3) < 0.8, (4, 3)),
    "values": (dl.Ranking, drawn(4, 5), (5,)),
    "vertices": (dl.Finite, drawn(4, 6, 3), (3,)),
    "positive": (dl.Interleaving, drawn(4, 5) > 0, (5,)),
}


@pytest.mark.parametrize("name", MAKES)
def test_vmap_over_data_equals_the_batched_call(name):
    make, data, entries = MAKES[name]
    scores, cost = drawn(4, *entries, seed=1), drawn(4, *entries, seed=3)
    batched = data.unsqueeze(1) if name == "forbidden" else data  # (B, 1, L, L)

    def loss(scores, cost, data):
        return direct_loss(scores, cost, make(data), epsilon=-1.0)

    leaf = scores.clone().requires_grad_()
    expected = loss(leaf, cost, batched)
    expected.sum().backward()
    assert leaf.grad.any()
    torch.testing.assert_close(vmap(loss)(scores, cost, data), expected.detach())
    torch.testing.assert_close(vmap(grad(loss))(scores, cost, data), leaf.grad)
