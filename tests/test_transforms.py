"""``direct_loss`` under ``torch.func`` and ``torch.compile``."""

import pytest
import torch
from tables import direct_loss, every_structure, named
from torch.func import grad, vmap

import directloss as dl

sides = pytest.mark.parametrize("sides", ["one", "both"])


@every_structure
@sides
def test_vmap_and_vmap_of_grad_equal_the_batched_call(row, sides):
    scores, cost = row.scores(4, 3), row.scores(3, seed=1)

    def loss(scores, cost):
        return direct_loss(scores, cost, row.structure, epsilon=-0.5, sides=sides)

    leaf = scores.clone().requires_grad_()
    batched = loss(leaf, cost)
    batched.sum().backward()
    torch.testing.assert_close(vmap(loss, in_dims=(0, None))(scores, cost), batched.detach())
    torch.testing.assert_close(vmap(loss, in_dims=(1, 0), out_dims=1)(scores, cost), batched.detach())
    torch.testing.assert_close(vmap(vmap(loss), in_dims=(0, None))(scores, cost), batched.detach())
    torch.testing.assert_close(vmap(vmap(grad(loss)), in_dims=(0, None))(scores, cost), leaf.grad)
    # vmap over the cost alone.
    assert torch.equal(vmap(loss, in_dims=(None, 0))(scores[0, 0], cost), loss(scores[0, :1].expand_as(cost), cost))


@every_structure
@sides
def test_vmap_over_one_noise_equals_one_noise_for_all(row, sides):
    scores, cost = row.scores(4), row.scores(4, seed=1)
    gamma = dl.Gumbel().sample((6, *row.entries), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(scores, cost, **options):
        return direct_loss(scores, cost, row.structure, epsilon=-0.5, sides=sides, scale=0.7, samples=6, **options)

    leaf = scores.clone().requires_grad_()
    shared = loss(leaf, cost, noise=gamma.unsqueeze(1).expand(6, *scores.shape))
    shared.sum().backward()

    def drawn(scores, cost):
        return loss(scores, cost, generator=torch.Generator().manual_seed(0))

    torch.testing.assert_close(vmap(drawn, randomness="same")(scores, cost), shared.detach())
    torch.testing.assert_close(vmap(grad(drawn), randomness="same")(scores, cost), leaf.grad)


@named("choice", "matching-3x3")
@pytest.mark.parametrize("wanted", [0, 2], ids=["scores", "scale"])
def test_vmap_of_grad_takes_a_scale_for_each_instance(row, wanted):
    arguments = [row.scores(4), row.scores(4, seed=1), torch.linspace(0.5, 2, 4, dtype=torch.float64)]
    gamma = dl.Gumbel().sample((6, *row.entries), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(scores, cost, scale):
        noise = gamma if scores.shape == row.entries else gamma.unsqueeze(1).expand(6, *scores.shape)
        return direct_loss(scores, cost, row.structure, epsilon=-0.5, scale=scale, noise=noise)

    leaves = [argument.clone().requires_grad_() for argument in arguments]
    loss(*leaves).sum().backward()
    torch.testing.assert_close(vmap(grad(loss, argnums=wanted))(*arguments), leaves[wanted].grad)


def test_compiled_training_steps_give_the_same_gradient(generator):
    net = torch.nn.Linear(2, 4)
    x, cost = torch.randn(5, 2, generator=generator), torch.randn(5, 4, generator=generator)
    criterion = dl.DirectLoss(dl.Subset(2), epsilon=dl.GrowingEpsilon(-0.5), samples=3)

    def step(x):
        return criterion(net(x), cost, scale=1.0, generator=torch.Generator().manual_seed(0)).sum()

    gradients = []
    for run in (step, torch.compile(step, backend="aot_eager")):
        net.zero_grad()
        loss = run(x)
        loss.backward()
        gradients.append((loss.detach(), net.weight.grad.clone(), net.bias.grad.clone()))
    assert gradients[0][1].any()
    torch.testing.assert_close(*gradients)
