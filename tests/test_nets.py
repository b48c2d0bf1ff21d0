"""The paper's nets, and that a stack of them is so many independent ones."""

import math

import pytest
import torch

import directloss as dl

NETS = {"score": (dl.nets.SortingNet, (6,)), "scale": (dl.nets.SortingScale, ())}
every_net = pytest.mark.parametrize(("net", "entries"), NETS.values(), ids=NETS.keys())


def unstack(net, stacked, index):
    """Copy one net's parameters out of a stack."""
    net.load_state_dict({name: value[index] for name, value in stacked.state_dict().items()})
    return net


def test_a_sorting_net_scores_each_number_on_its_own(generator):
    net = dl.nets.SortingNet(6, hidden=8, generator=generator)
    x = torch.rand(4, 6, generator=generator)
    assert net(x).shape == (4, 6, 6)
    assert torch.allclose(net(x.flip(-1)), net(x).flip(-2))
    assert net(x[0, 0].expand(1, 6)).unique(dim=1).shape == (1, 1, 6)


def test_a_sorting_net_is_linear_relu_linear(generator):
    net = dl.nets.SortingNet(6, hidden=8, generator=generator)
    plain = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    with torch.no_grad():
        for layer, ours in ((plain[0], net.embed), (plain[2], net.score)):
            layer.weight.copy_(ours.weight.mT)
            layer.bias.copy_(ours.bias[0])
    x = torch.rand(4, 6, generator=generator)
    torch.testing.assert_close(net(x), plain(x.unsqueeze(-1)))


def test_a_scale_net_gives_one_number_for_each_sequence(generator):
    net = dl.nets.SortingScale(6, generator=generator)
    x = torch.rand(4, 6, generator=generator)
    assert net(x).shape == (4,)
    plain = torch.nn.functional.softplus(x @ net.affine.weight + net.affine.bias).squeeze(-1)
    torch.testing.assert_close(net(x), plain)


@every_net
@pytest.mark.parametrize("stack", [(3,), (2, 3)])
def test_a_stack_is_so_many_separate_nets(net, entries, stack, generator):
    stacked = net(6, stack=stack, generator=generator)
    x = torch.rand(*stack, 4, 6, generator=generator)
    out = stacked(x)
    assert out.shape == (*stack, 4, 6, 6)[: len(stack) + 1] + (6, *entries) * bool(entries)
    out.square().sum().backward()
    for index in torch.cartesian_prod(*map(torch.arange, stack)).reshape(-1, len(stack)):
        index = tuple(index.tolist())
        alone = unstack(net(6), stacked, index)
        torch.testing.assert_close(alone(x[index]), out[index])
        alone(x[index]).square().sum().backward()
        for own, shared in zip(alone.parameters(), stacked.parameters(), strict=True):
            torch.testing.assert_close(own.grad, shared.grad[index], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("affine", "inputs"),
    [
        (lambda generator: dl.nets.SortingNet(200, hidden=100, generator=generator).embed, 1),
        (lambda generator: dl.nets.SortingNet(200, hidden=100, generator=generator).score, 100),
        (lambda generator: dl.nets.SortingScale(1000, generator=generator).affine, 1000),
    ],
    ids=["embed", "score", "scale"],
)
def test_parameters_start_uniform_in_the_bounds_of_linear(affine, inputs, generator):
    layer, bound = affine(generator), 1 / math.sqrt(inputs)
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= bound
    values = torch.cat([layer.weight.flatten(), layer.bias.flatten()]).double()
    # Uniform in [-b, b]: variance b^2 / 3, and a variance of that estimate of 4 b^4 / 45 N.
    assert abs(values.var() - bound**2 / 3) < 5 * bound**2 * math.sqrt(4 / 45 / len(values))
    assert abs(values.mean()) < 5 * bound / math.sqrt(3 * len(values))


@every_net
def test_parameters_come_from_the_generator_alone(net, entries):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, same, other = (net(6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert all(map(torch.equal, first.parameters(), same.parameters()))
    assert not all(map(torch.equal, first.parameters(), other.parameters()))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_scale_is_strictly_positive_and_finite(dtype):
    x = torch.tensor([-6e4, -1000.0, -100.0, -1.0, 0.0, 1.0, 1000.0, 6e4], dtype=dtype)
    scale = dl.nets.positive(x)
    assert scale.dtype == dtype
    assert (scale > 0).all()
    assert torch.isfinite(scale).all()
    assert (scale.diff() >= 0).all()
    torch.testing.assert_close(scale[3:6], torch.nn.functional.softplus(x[3:6]))


def test_scores_and_scale_train_together(generator):
    scorer, scaler = (net(6, generator=generator) for net, _ in NETS.values())
    x = torch.rand(10, 6, generator=generator)
    loss = dl.direct_loss(
        scorer(x),
        dl.costs.rank_distance(x),
        dl.Matching(),
        epsilon=-12.0,
        scale=scaler(x),
        samples=5,
        generator=generator,
    )
    loss.backward()
    assert all(parameter.grad.any() for net in (scorer, scaler) for parameter in net.parameters())
