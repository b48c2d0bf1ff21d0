"""A matching reads what its instances share once, without a copy for every instance."""

import numpy as np
import pytest
import torch

import directloss as dl
from directloss.structures.arrays import repeating


@pytest.mark.parametrize("shape", [(7, 7), (1, 7, 7), (1, 1, 7, 7)])
def test_a_cost_that_all_instances_share_is_not_copied(shape):
    cost = torch.rand(shape)
    batch = torch.Size((5, 100, 7, 7))
    for given in (cost, cost.expand(batch)):
        read = repeating(given, batch[:-2], batch[-2:])
        assert read.shape == (1, 7, 7)
        assert np.shares_memory(read, cost.numpy())


def test_a_cost_shared_by_the_samples_is_read_once_for_each_instance():
    cost = torch.rand(100, 7, 7)
    read = repeating(cost.expand(5, 100, 7, 7), (5, 100), (7, 7))
    assert read.shape == (100, 7, 7)
    assert np.shares_memory(read, cost.numpy())


def test_an_expanded_cost_gives_what_its_copy_gives():
    generator = torch.Generator().manual_seed(0)
    scores, cost = torch.rand(4, 30, 6, 6, generator=generator), torch.rand(30, 6, 6, generator=generator)
    for shared in (cost, cost[:1], cost[:, :1]):
        whole = shared.expand(4, 30, 6, 6)
        steps = (0.0, 1.0, -1.0)
        expected = dl.Matching().solve_along(scores, whole.contiguous(), steps)
        assert torch.equal(dl.Matching().solve_along(scores, whole, steps), expected)
