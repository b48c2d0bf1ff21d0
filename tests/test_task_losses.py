"""Task losses that are functions: linearised at y, or maximised by the user's own augmented maximiser."""

import pytest
import torch
from tables import Row, direct_loss, every_structure

import directloss as dl
from directloss.structures.certificate import WrongMaximizerError

GENERATOR_SEED = 3


def run(scores, cost, structure, **options):
    leaf = scores.clone().requires_grad_()
    options = {"epsilon": -1.5, "scale": 0.7, "samples": 4, **options}
    loss = direct_loss(leaf, cost, structure, generator=torch.Generator().manual_seed(GENERATOR_SEED), **options)
    loss.sum().backward()
    return loss.detach(), leaf.grad


def linear(cost, entry_dims):
    return lambda y: (cost * y).sum(tuple(range(-entry_dims, 0)))


@every_structure
@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)], ids=str)
def test_a_linear_function_gives_what_its_coefficients_give(row: Row, sides, batch):
    scores, cost = row.scores(*batch), row.scores(*batch, seed=1)
    by_function = run(scores, linear(cost, row.structure.entry_dims), row.structure, sides=sides)
    torch.testing.assert_close(by_function, run(scores, cost, row.structure, sides=sides))


@every_structure
def test_a_linear_function_takes_an_epsilon_for_each_instance(row: Row):
    scores, cost = row.scores(4), row.scores(4, seed=1)
    epsilon = torch.tensor([-1.0, 2.0, 0.5, -3.0])
    by_function = run(scores, linear(cost, row.structure.entry_dims), row.structure, epsilon=epsilon)
    torch.testing.assert_close(by_function, run(scores, cost, row.structure, epsilon=epsilon))


def test_a_smooth_loss_of_a_subset_is_linearised_at_y():
    values = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0], dtype=torch.float64)
    scores = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    structure = dl.Subset(2)

    def squared_deviation(y):
        return ((y * values).sum(-1) - 6.0) ** 2

    loss, gradient = run(scores, squared_deviation, structure, scale=0.0, samples=1)
    y = structure.solve(scores)
    slope = 2 * ((y * values).sum(-1, keepdim=True) - 6) * values
    ahead = structure.solve(scores - 1.5 * slope)
    torch.testing.assert_close(loss, squared_deviation(y))
    torch.testing.assert_close(gradient, (ahead - y) / -1.5)


def test_training_lowers_a_smooth_loss(generator):
    structure = dl.Subset(2)
    target = structure.solve(torch.randn(8, 5, generator=generator))
    scores = torch.zeros(8, 5, requires_grad=True)

    def fourth_power(y):
        return ((y - target) ** 2).sum(-1) ** 2

    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss = dl.direct_loss(scores, fourth_power, structure, epsilon=-0.1, scale=0.5, samples=5, generator=generator)
        loss.backward()
        optimizer.step()
    assert fourth_power(structure.solve(scores.detach())).max() == 0


TARGET = torch.tensor([[1, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=torch.float64)


def brute_force(theta, target, epsilon):
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * theta.shape[-1]).double()
    values = theta @ every.mT
    losses = torch.stack([dl.costs.F1(target)(y.expand_as(target)) for y in every], -1)
    return values + epsilon * losses, every


@pytest.mark.parametrize("epsilon", [-5.0, -0.3, 0.3, 5.0])
@pytest.mark.parametrize("tied", [False, True])
def test_the_augmented_maximiser_of_f1_is_the_best_of_all_decisions(epsilon, tied):
    for seed in range(50):
        theta = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        theta = theta.round() if tied else theta
        loss = dl.costs.F1(TARGET)
        y = loss.augmented(theta, epsilon)
        values, _ = brute_force(theta, TARGET, epsilon)
        torch.testing.assert_close((theta * y).sum(-1) + epsilon * loss(y), values.amax(-1))


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    y = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]]).double().expand(4, 5)
    found = 1 - dl.costs.F1(TARGET)(y)
    right, chosen, wanted = (y * TARGET).sum(-1), y.sum(-1), TARGET.sum(-1)
    precision, recall = right / chosen, right / wanted.clamp_min(1)
    torch.testing.assert_close(found, (2 * precision * recall / (precision + recall)).nan_to_num())
    assert dl.costs.F1(TARGET)(torch.zeros(4, 5)).tolist() == [1.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("sides", ["one", "both"])
def test_f1_trains_through_its_augmented_maximiser(sides, generator):
    loss, scores = dl.costs.F1(TARGET), torch.zeros(4, 5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    for _ in range(80):
        optimizer.zero_grad()
        dl.direct_loss(
            scores, loss, dl.Bits(), epsilon=-1.0, sides=sides, scale=0.2, samples=3, augmented=loss.augmented,
            generator=generator,
        ).backward()  # fmt: skip
        optimizer.step()
    assert loss(dl.Bits().solve(scores)).max() == 0


@pytest.mark.parametrize("sides", ["one", "both"])
def test_the_gradient_with_an_augmented_maximiser_is_the_definition(sides):
    loss = dl.costs.F1(TARGET)
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value, gradient = run(scores, loss, dl.Bits(), sides=sides, augmented=loss.augmented, scale=0.0, samples=1)
    y = dl.Bits().solve(scores)
    ahead = loss.augmented(scores, -1.5)
    behind = loss.augmented(scores, 1.5) if sides == "both" else y
    torch.testing.assert_close(value, loss(y))
    torch.testing.assert_close(gradient, (ahead - behind) / (-3.0 if sides == "both" else -1.5))


def test_a_wrong_augmented_maximiser_is_found_out():
    loss = dl.costs.F1(TARGET)
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(WrongMaximizerError, match=r"augmented at epsilon = -1.5 did not maximise"):
        run(scores, loss, dl.Bits(), augmented=lambda theta, epsilon: loss.augmented(theta, -epsilon))


def test_functions_that_cannot_be_used_say_what_to_write():
    scores = torch.zeros(4, 5, dtype=torch.float64)
    loss = dl.costs.F1(TARGET)
    with pytest.raises(ValueError, match=r"carries no gradient.*pass augmented="):
        run(scores, lambda y: loss(y.detach()), dl.Bits())
    with pytest.raises(ValueError, match=r"cost returned shape \(\), expected one loss for each instance, \(4,\)"):
        run(scores, lambda y: y.sum(), dl.Bits())
    with pytest.raises(ValueError, match=r"cost returned float"):
        run(scores, lambda y: 1.0, dl.Bits())
    with pytest.raises(TypeError, match="cost is list, expected a tensor, or a function"):
        run(scores, [1.0], dl.Bits())
    with pytest.raises(ValueError, match="augmented goes with a cost that is a function"):
        run(scores, scores, dl.Bits(), augmented=loss.augmented)
    with pytest.raises(ValueError, match=r"augmented returned shape \(4,\)"):
        run(scores, loss, dl.Bits(), augmented=lambda theta, epsilon: theta[:, 0])


def test_without_gradients_the_loss_of_a_function_is_that_of_y():
    loss = dl.costs.F1(TARGET)
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(direct_loss(scores, loss, dl.Bits(), epsilon=1.0), loss(dl.Bits().solve(scores)))
