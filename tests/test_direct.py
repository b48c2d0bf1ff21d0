"""``direct_loss`` is its definition: the value ``<cost, y>``, the gradient from solves on the same noise."""

import pytest
import torch
from tables import direct_loss, every_structure, index_in, objective

import directloss as dl

EPSILON = -1.5


def by_hand(row, scores, cost, scale, gamma, epsilon, sides):
    """Value and gradients (to the scores, to a scale for each entry) for given noise (S, B..., *E), from ``solve``."""
    theta = scores + scale * gamma
    y, ahead, behind = (row.structure.solve(theta + step * cost) for step in (0.0, epsilon, -epsilon))
    difference = (ahead - y) / epsilon if sides == "one" else (ahead - behind) / (2 * epsilon)
    return objective(cost, y, row.structure.entry_dims).mean(0), difference.mean(0), (difference * gamma).mean(0)


@every_structure
@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize("epsilon", [0.5, -1.5])
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)], ids=str)
def test_value_and_gradients_are_the_definition(row, sides, epsilon, batch):
    scores, cost = row.scores(*batch).requires_grad_(), row.scores(*batch, seed=1)
    scale = row.scores(*batch, seed=2).abs().requires_grad_()
    gamma = dl.Gumbel().sample((7, *scores.shape), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    loss = direct_loss(
        scores,
        cost,
        row.structure,
        epsilon=epsilon,
        sides=sides,
        scale=scale,
        samples=7,
        generator=torch.Generator().manual_seed(3),
    )
    value, to_scores, to_scale = by_hand(row, scores.detach(), cost, scale.detach(), gamma, epsilon, sides)
    assert loss.shape == batch
    torch.testing.assert_close(loss, value)
    weights = torch.arange(1.0, 1 + loss.numel(), dtype=torch.float64).reshape(batch)
    (loss * weights).sum().backward()
    weights = weights[(..., *[None] * row.structure.entry_dims)]
    torch.testing.assert_close(scores.grad, weights * to_scores)
    torch.testing.assert_close(scale.grad, weights * to_scale)


@every_structure
def test_the_same_generator_seed_gives_the_same_bits(row):
    def run(seed):
        scores, scale = row.scores(4).requires_grad_(), torch.tensor(1.0, requires_grad=True)
        generator = torch.Generator().manual_seed(seed)
        loss = direct_loss(
            scores, row.scores(seed=1), row.structure, epsilon=EPSILON, scale=scale, samples=9, generator=generator
        )
        loss.sum().backward()
        return torch.cat([loss.detach(), scores.grad.flatten(), scale.grad.flatten()])

    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
    assert torch.equal(torch.get_rng_state(), state), "the default generator was used as well"


@every_structure
@pytest.mark.parametrize("zero", [0.0, 0])
def test_scale_zero_draws_no_noise_and_gives_one_sample(row, zero, generator):
    state = generator.get_state()
    scores, cost = row.scores(4).requires_grad_(), row.scores(4, seed=1)
    loss, y = direct_loss(
        scores,
        cost,
        row.structure,
        epsilon=EPSILON,
        scale=zero,
        generator=generator,
        return_structure=True,
    )
    assert torch.equal(generator.get_state(), state)
    assert torch.equal(y, row.structure.solve(scores).unsqueeze(0))
    loss.sum().backward()
    value, to_scores, _ = by_hand(row, scores.detach(), cost, 0.0, torch.zeros(1, *scores.shape), EPSILON, "one")
    torch.testing.assert_close(loss, value)
    torch.testing.assert_close(scores.grad, to_scores)


@every_structure
def test_scales_for_all_for_instances_and_for_entries_agree_where_they_are_equal(row):
    scores, cost = row.scores(2, 3), row.scores(seed=1)
    instances = torch.rand(2, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    entries = instances[(..., *[None] * row.structure.entry_dims)]

    def gradient(scale):
        scores.grad = None
        leaf = torch.as_tensor(scale, dtype=torch.float64).clone().requires_grad_()
        loss = direct_loss(
            scores.requires_grad_(),
            cost,
            row.structure,
            epsilon=EPSILON,
            scale=leaf if isinstance(scale, torch.Tensor) else scale,
            samples=5,
            generator=torch.Generator().manual_seed(3),
        )
        loss.sum().backward()
        return loss.detach(), scores.grad, leaf.grad

    loss, to_scores, to_scale = gradient(instances)
    for other in (entries, entries.expand_as(scores)):
        other_loss, other_to_scores, other_to_scale = gradient(other)
        torch.testing.assert_close((other_loss, other_to_scores), (loss, to_scores))
        torch.testing.assert_close(other_to_scale.reshape(2, 3, -1).sum(-1), to_scale)
    number, scalar, alike = gradient(0.7), gradient(torch.tensor(0.7)), gradient(torch.full((2, 3), 0.7))
    torch.testing.assert_close(scalar[:2], number[:2], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alike[2].sum(), scalar[2])


@every_structure
def test_returned_structures_are_the_ones_whose_mean_cost_is_the_loss(row, generator):
    scores, cost = row.scores(2, 3), row.scores(2, 3, seed=1)
    loss, y = direct_loss(
        scores,
        cost,
        row.structure,
        epsilon=EPSILON,
        scale=1.0,
        samples=6,
        generator=generator,
        return_structure=True,
    )
    assert y.shape == (6, *scores.shape)
    index_in(y, row.every)
    torch.testing.assert_close(objective(cost, y, row.structure.entry_dims).mean(0), loss)


@every_structure
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_loss_and_gradients_keep_the_dtype_of_the_scores(row, dtype, generator):
    scores, scale = row.scores(4, dtype=dtype).requires_grad_(), torch.ones(4, requires_grad=True)
    cost = row.scores(4, seed=1)
    loss = direct_loss(scores, cost, row.structure, epsilon=2.0, scale=scale, samples=4, generator=generator)
    loss.sum().backward()
    assert loss.dtype == scores.grad.dtype == dtype
    assert scale.grad.dtype == scale.dtype
    # Multiples of 1 / (samples * epsilon) = 1/8 are exact in every dtype (the structures' own are quarters at most).
    assert torch.equal(scores.grad * 32, (scores.grad * 32).round())
    assert scores.grad.any()


@every_structure
@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize(
    "narrow",
    [
        lambda cost: cost[0],
        lambda cost: cost[:, :1],
        lambda cost: cost[0, 0],
        lambda cost: cost[..., :1],
    ],
    ids=["no-first-axis", "second-axis", "no-batch-axes", "entry-axis"],
)
def test_costs_broadcast_over_batch_and_entry_axes(row, sides, narrow):
    scores, cost = row.scores(2, 3), narrow(row.scores(2, 3, seed=1))
    results = []
    for given in (cost, cost.expand_as(scores)):
        leaf = scores.clone().requires_grad_()
        loss = direct_loss(leaf, given, row.structure, epsilon=EPSILON, sides=sides)
        loss.sum().backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("scale", [0.7, 1e-50, 1e39])
def test_a_scale_that_is_a_number_keeps_its_precision(scale):
    seen = []

    def maximiser(scores):
        seen.append(scores.clone())
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])

    zeros, ones = torch.zeros(2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    direct_loss(zeros, zeros, dl.custom(maximiser), epsilon=1.0, scale=scale, noise=ones)
    # One call for all steps and samples.
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.full((1, 1, 2), scale, dtype=torch.float64))


@every_structure
def test_noise_given_as_draws_is_the_noise_that_is_used(row):
    scores, cost = row.scores(4), row.scores(4, seed=1)
    gamma = dl.Normal().sample((3, *scores.shape), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    results = []
    for options in ({"noise": gamma}, {"noise": dl.Normal(), "samples": 3}):
        leaf, generator = scores.clone().requires_grad_(), torch.Generator().manual_seed(3)
        loss = direct_loss(leaf, cost, row.structure, epsilon=EPSILON, scale=0.8, generator=generator, **options)
        loss.sum().backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(*results)
    for wrong in (gamma[:, :2], gamma[0], gamma[:0]):
        with pytest.raises(ValueError, match=r"noise has shape .* expected \(samples, "):
            direct_loss(scores, cost, row.structure, epsilon=EPSILON, scale=0.8, noise=wrong)


@every_structure
def test_an_empty_batch_gives_an_empty_loss(row):
    scores = row.scores(0).requires_grad_()
    for scale in (0.0, 1.0):
        loss = direct_loss(scores, row.scores(seed=1), row.structure, epsilon=EPSILON, scale=scale)
        assert loss.shape == (0,)
        loss.sum().backward()
        assert scores.grad.shape == scores.shape


@every_structure
def test_no_gradient_reaches_the_cost(row):
    scores, cost = row.scores(3).requires_grad_(), row.scores(3, seed=1).requires_grad_()
    direct_loss(scores, cost, row.structure, epsilon=EPSILON).sum().backward()
    assert cost.grad is None


@every_structure
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_any_optimiser_learns_the_target(row, optimiser, generator):
    target = row.structure.solve(row.scores(seed=1))
    scores = torch.zeros(row.entries, dtype=torch.float64, requires_grad=True)
    steps = optimiser([scores], lr=0.1)
    for _ in range(50):
        loss = direct_loss(
            scores,
            dl.costs.hamming(target),
            row.structure,
            epsilon=EPSILON,
            sides="both",
            scale=0.1,
            samples=5,
            generator=generator,
        )
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert torch.equal(row.structure.solve(scores), target)


CHANGES = {
    "epsilon": {"epsilon": 0.5},
    "sides": {"sides": "both"},
    "scale": {"scale": 2.0},
    "noise": {"noise": dl.Normal()},
    "variance": {"noise": dl.Gumbel(variance=3.0)},
    "samples": {"samples": 2},
    "generator": {"generator": torch.Generator().manual_seed(1)},
    "structure": {"structure": dl.Subset(2)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_option_changes_the_gradient(change):
    scores = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    cost = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))

    def gradient(**options):
        leaf = scores.clone().requires_grad_()
        options = {"structure": dl.Choice(), "epsilon": -1.0, "scale": 1.0, **options}
        options.setdefault("generator", torch.Generator().manual_seed(0))
        direct_loss(leaf, cost, **options).sum().backward()
        return leaf.grad

    assert torch.equal(gradient(), gradient())
    assert not torch.equal(gradient(), gradient(**change))
