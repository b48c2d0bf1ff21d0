"""Which structures the perturbed predictor gives, and how often: supplement A, the discussion and figure 1."""

import math
from itertools import pairwise

import pytest
import torch
from oracles import Estimate, assert_agrees
from tables import Row, every_structure, index_in, named
from torch import Tensor

import directloss as dl

DRAWS = 200_000


def frequencies(row: Row, scores: Tensor, sigma: float, draws: int = DRAWS) -> Estimate:
    """How often each enumerated structure is the perturbed prediction, one noise variable for each entry."""
    generator = torch.Generator().manual_seed(0)
    _, y = dl.direct_loss(
        scores,
        scores,
        row.structure,
        epsilon=1.0,
        scale=sigma,
        samples=draws,
        generator=generator,
        return_structure=True,
    )
    counts = torch.bincount(index_in(y, row.every), minlength=len(row.every)).double()
    share = counts / draws
    # Never less than one draw's worth, so that a frequency of 0 has an error too.
    return Estimate(share, ((share * (1 - share)).clamp_min(1 / draws) / draws).sqrt())


def total_variation(share: Estimate, other: Tensor) -> Tensor:
    """A lower bound, five standard errors below the estimate: half the sum of the frequencies' errors each."""
    return ((share.mean - other).abs() - 5 * share.error).sum(-1) / 2


@every_structure
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_supplement_a_a_gumbel_for_every_structure_is_gibbs(row, sigma):
    """P(y) is proportional to exp(mu(y) / sigma), and E max is sigma log Z."""
    scores = row.every.flatten(1) @ row.scores(seed=11).flatten()
    gamma = dl.Gumbel().sample((100_000, len(scores)), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best, chosen = (scores + sigma * gamma).max(-1)
    share = torch.bincount(chosen, minlength=len(scores)) / len(chosen)
    gibbs = torch.softmax(scores / sigma, -1)
    assert_agrees(Estimate(share, (gibbs * (1 - gibbs) / len(chosen)).sqrt()), gibbs)
    assert_agrees(Estimate.of(best), sigma * torch.logsumexp(scores / sigma, -1))


@named("choice")
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_a_choice_is_gibbs_because_its_entries_are_its_structures(row, sigma):
    scores = row.scores(seed=11)
    assert_agrees(frequencies(row, scores, sigma), torch.softmax(scores / sigma, -1))


@named("matching-3x3")
def test_low_dimensional_noise_is_not_gibbs(row):
    share = frequencies(row, torch.eye(3, dtype=torch.float64), 1.0)
    gibbs = torch.softmax(row.every.diagonal(dim1=1, dim2=2).sum(1), -1)
    assert total_variation(share, gibbs) > 0.1


@named("matching-3x3", "subset")
def test_low_dimensional_noise_is_not_gibbs_at_any_temperature(row):
    scores = {"matching-3x3": [[0.0, 4.0, 8.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]], "subset": [2.0, 1.0, 0.0, 0.0, 0.0]}
    scores = torch.tensor(scores[row.name], dtype=torch.float64)
    share = frequencies(row, scores, 1.0)
    temperatures = torch.logspace(-2, 2, 400, dtype=torch.float64)[:, None]
    gibbs = torch.softmax(row.every.flatten(1) @ scores.flatten() / temperatures, -1)
    assert total_variation(share, gibbs).min() > 0.01


@every_structure
def test_figure_1_a_small_sigma_is_deterministic(row):
    scores = row.scores(seed=11)
    ranked = (row.every.flatten(1) @ scores.flatten()).sort(descending=True).values
    gap, sigma = (ranked[0] - ranked[1]).item(), 1e-4
    # Noise must move one of the entries by gap / entries: P(|gamma| > t) < 2 exp(-t) for each.
    assert 2 * math.prod(row.entries) * DRAWS * math.exp(-gap / (sigma * 2 * math.prod(row.entries))) < 1e-9
    share = frequencies(row, scores, sigma, draws=1000).mean
    assert share[index_in(row.structure.solve(scores), row.every)] == 1


@named("choice", "subset", "matching-3x3", "matching-4x4", "matching-2x4", "matching-4x2", "custom")
def test_figure_1_a_large_sigma_is_uniform(row):
    """For structures that permuting the entries maps onto each other."""
    scores, sigma = row.scores(seed=11), 1e5
    # Shifting the noise by mu / sigma changes no probability by more than sum |mu| / (e sigma): far below the errors.
    shift = scores.abs().sum().item() / (math.e * sigma)
    share = frequencies(row, scores, sigma)
    assert shift < 0.1 * share.error.min()
    assert_agrees(share, torch.full_like(share.mean, 1 / len(row.every)))


@named("choice", "subset", "matching-3x3", "matching-4x4")
def test_figure_1_entropy_rises_with_sigma(row):
    entropies = []
    for sigma in (1e-3, 0.3, 1.0, 3.0, 10.0, 100.0):
        share = frequencies(row, row.scores(seed=11), sigma, draws=20_000).mean
        entropies.append(torch.special.entr(share).sum().item())
    assert all(before < after for before, after in pairwise(entropies))
