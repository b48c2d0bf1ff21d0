"""Rankings against matchings and the metric that they make linear."""

import os

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "3000"))
KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "huge": lambda rng, shape: 1e30 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
}


def test_rankings_are_as_good_as_scipys_assignments():
    """Item i at rank r is worth score_i value_r."""
    names = sorted(KINDS)
    for seed in range(-(-INSTANCES // 100)):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 9))
        scores = KINDS[names[seed % 6]](rng, (100, n))
        values = KINDS[names[seed // 6 % 6]](rng, (100, n) if seed % 2 else (n,))
        y = dl.Ranking(torch.from_numpy(values)).solve(torch.from_numpy(scores)).numpy()
        each = np.broadcast_to(values, scores.shape)
        assert (np.sort(y, -1) == np.sort(each, -1)).all()
        for instance in range(100):
            worth = np.multiply.outer(scores[instance], each[instance])
            rows, columns = linear_sum_assignment(worth, maximize=True)
            best, size = worth[rows, columns].sum(), np.abs(worth).max()
            assert abs(scores[instance] @ y[instance] - best) <= 4 * n * size * 1e-15


def test_dcg_is_linear_in_the_ranking(generator):
    gain = torch.randint(5, (20, 10), generator=generator).double()
    scores = torch.randn(20, 10, generator=generator, dtype=torch.float64)
    discounts = 1 / torch.log2(torch.arange(2.0, 12.0, dtype=torch.float64))
    ranked = gain.gather(-1, scores.argsort(-1, descending=True))
    y = dl.Ranking(discounts).solve(scores)
    torch.testing.assert_close((gain * y).sum(-1), (ranked * discounts).sum(-1))


def test_gradient_descent_on_minus_dcg_ranks_by_gain(generator):
    gain = torch.tensor([[0.0, 3.0, 1.0, 2.0, 4.0]])
    structure = dl.Ranking(1 / torch.log2(torch.arange(2.0, 7.0)))
    scores = torch.randn(1, 5, generator=generator, requires_grad=True)
    optimiser = torch.optim.Adam([scores], lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        dl.direct_loss(scores, -gain, structure, epsilon=-1.0, scale=0.3, samples=5, generator=generator).backward()
        optimiser.step()
    assert torch.equal(scores.argsort(-1), gain.argsort(-1))


def test_of_tied_items_the_first_gets_the_larger_value():
    values = torch.tensor([1.0, 3.0, 2.0])
    for batch in ((), (7,), (500,)):
        assert torch.equal(
            dl.Ranking(values).solve(torch.zeros(*batch, 3)), torch.tensor([3.0, 2.0, 1.0]).expand(*batch, 3)
        )


def test_values_of_each_instance_are_its_own_under_samples_and_steps(generator):
    values = torch.tensor([[3.0, 1.0, 0.0], [1.0, 1.0, -2.0]])
    scores = torch.randn(4, 2, 3, generator=generator)
    y = dl.Ranking(values).solve_along(scores, torch.randn(2, 3, generator=generator), (0.0, 1.0))
    assert torch.equal(y.sort(-1, descending=True).values, values.expand(2, 4, 2, 3))


def test_equal_values_are_counted_once():
    structure, scores = dl.Ranking(torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0])), torch.zeros(5)
    assert structure.count(scores) == len(structure.enumerate(scores)) == 20
    assert dl.Ranking(torch.arange(30.0)).count(torch.zeros(30)) > 10**30


@pytest.mark.parametrize(
    ("values", "scores", "message"),
    [
        ([1.0, 2.0], torch.zeros(2), "values is list, expected a torch.Tensor"),
        (torch.tensor(1.0), torch.zeros(1), r"values is one number, expected \(n,\)"),
        (torch.tensor([True, False]), torch.zeros(2), "values are torch.bool, expected numbers"),
        (torch.tensor([[1.0, 2.0], [1.0, torch.nan]]), torch.zeros(2), r"values of instance \(1,\) are not all finite"),
        (torch.zeros(3), torch.zeros(2), "scores have 2 items, but values are 3; give a value for each item"),
        (torch.zeros(4, 3), torch.zeros(2, 3), r"values has batch axes \(4,\), which do not broadcast"),
    ],
)
def test_bad_input_is_refused_at_the_boundary(values, scores, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dl.Ranking(values).solve(scores)


@pytest.mark.parametrize("batch", [(7,), (2, 3), (3, 1)], ids=str)
def test_pieces_of_a_batch_are_ranked_with_their_own_values_and_mask(batch, monkeypatch, generator):
    scores, values = torch.randn(*batch, 5, generator=generator), torch.randn(batch[-1], 5, generator=generator)
    rankings = dl.Ranking(values), dl.Ranking(values, torch.rand(*batch, 5, generator=generator) < 0.6)
    whole = [ranking.solve(scores) for ranking in rankings]
    monkeypatch.setattr("directloss.structures.arrays._PIECE", 10)
    for ranking, y in zip(rankings, whole, strict=True):
        assert torch.equal(ranking.solve(scores), y)


def test_a_masked_list_is_ranked_like_the_short_list_alone(generator):
    scores, values = torch.randn(50, 6, generator=generator), torch.randn(6, generator=generator)
    mask = torch.rand(50, 6, generator=generator) < 0.6
    y = dl.Ranking(values, mask).solve(scores)
    best = values.sort(descending=True).values
    for one, there, given in zip(y, mask, scores, strict=True):
        count = int(there.sum())
        assert (one[~there] == 0).all()
        if count:
            torch.testing.assert_close(one[there], dl.Ranking(best[:count]).solve(given[there]))


def test_a_mask_of_another_length_or_type_is_refused():
    with pytest.raises(ValueError, match="mask of \\(3,\\) entries, but the scores have \\(4,\\)"):
        dl.Ranking(torch.arange(4), torch.ones(3, dtype=torch.bool)).solve(torch.zeros(4))
    with pytest.raises(TypeError, match="boolean tensor, True where there is an item"):
        dl.Ranking(torch.arange(4), torch.ones(4))
