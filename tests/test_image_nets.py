"""The image nets: shapes, sizes, plain torch as the oracle, and what a batch may and may not mix."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import directloss as dl
from directloss.nets import blocks, resnet

NETS = {
    "lenet": (dl.nets.LeNet, (1, 28, 28), (500,)),
    "lenet-scale": (dl.nets.LeNetScale, (1, 28, 28), ()),
    "conv-scale": (dl.nets.ConvScale, (3, 32, 32), ()),
    "resnet9": (dl.nets.ResNet9, (3, 32, 32), (256,)),
    "resnet18": (dl.nets.ResNet18, (3, 32, 32), (512,)),
    "whitenet": (lambda **options: dl.nets.WhiteNet(width=8, **options), (3, 32, 32), (32,)),
    "linear-scale": (lambda **options: dl.nets.LinearScale(12, **options), (12,), ()),
    "mlp": (lambda **options: dl.nets.MLP(12, **options), (12,), (64,)),
}
every_net = pytest.mark.parametrize(("net", "inputs", "outputs"), NETS.values(), ids=NETS.keys())


def images(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@every_net
def test_one_row_or_number_for_each_image(net, inputs, outputs, generator):
    net = net(generator=generator)
    out = net(images(3, *inputs))
    assert out.shape == (3, *outputs)
    out.square().sum().backward()
    assert all(parameter.grad.any() for parameter in net.parameters())
    assert net.eval()(images(1, *inputs)).shape == (1, *outputs)


@pytest.mark.parametrize(
    ("net", "count"),
    [
        (dl.nets.LeNet, 20 * (25 + 1) + 50 * (20 * 25 + 1) + 500 * (50 * 4 * 4 + 1)),
        (lambda: dl.nets.LeNet(3, 32, 10), 20 * (3 * 25 + 1) + 50 * (20 * 25 + 1) + 10 * (50 * 5 * 5 + 1)),
        (dl.nets.LeNetScale, 20 * (25 + 1) + 50 * (20 * 25 + 1) + 500 * (50 * 4 * 4 + 1) + 501),
        (dl.nets.ConvScale, 20 * (3 * 25 + 1) + 20 * 14 * 14 + 1),
        (dl.nets.ResNet18, 11_168_832),  # kuangliu/pytorch-cifar's 11,173,962 less a classifier of 513 * 10
        (lambda: dl.nets.ResNet18(outputs=10), 11_173_962),
        (lambda: dl.nets.ResNet18(norm="group"), 11_168_832),
        # In units of width: 3x3 convolutions, then a scale and a shift for each channel.
        (
            lambda: dl.nets.ResNet9(3, 16),
            9 * (3 * 16 + (2 + 2 * 4 + 8 + 32 + 2 * 64) * 16**2) + 2 * (1 + 3 * 2 + 4 + 3 * 8) * 16,
        ),
        # The first filters are fixed: no parameters.
        (
            lambda: dl.nets.WhiteNet(3, 16),
            9 * (24 * 16 + (1 + 4 + 3 * 16) * 16**2) + 4 * (1 + 4 + 4) * 16,
        ),
        (lambda: dl.nets.MLP(12, (8, 9), 5), 8 * 13 + 9 * 9 + 5 * 10),
        (lambda: dl.nets.MLP(12, (), 5), 5 * 13),
    ],
)
def test_parameters_are_as_many_as_by_hand(net, count):
    assert sum(parameter.numel() for parameter in net().parameters()) == count


def test_a_lenet_is_the_paper_s_stack_with_relu_before_the_pool(generator):
    net, x = dl.nets.LeNet(generator=generator), images(4, 1, 28, 28)
    conv1, conv2, fc = (layer for layer in net if isinstance(layer, nn.Conv2d | nn.Linear))
    plain = functional.max_pool2d(torch.relu(functional.conv2d(x, conv1.weight.contiguous(), conv1.bias)), 2)
    plain = functional.max_pool2d(torch.relu(functional.conv2d(plain, conv2.weight.contiguous(), conv2.bias)), 2)
    torch.testing.assert_close(net(x), torch.relu(fc(plain.flatten(1))))


def test_relu_after_the_pool_gives_the_values_and_gradients_of_relu_before_it(generator):
    pool, relu = blocks.pool_relu()
    x = torch.randn(2, 3, 8, 8, generator=generator)
    results = []
    for order in (nn.Sequential(pool, relu), nn.Sequential(relu, pool)):
        leaf = x.clone().requires_grad_()
        out = order(leaf.clone())
        out.square().sum().backward()
        results.append((out, leaf.grad))
    assert all(map(torch.equal, *results))


def test_an_mlp_is_linear_layers_with_relus_between(generator):
    net, x = dl.nets.MLP(4, (3, 5), 2, generator=generator), images(6, 7, 4)
    first, second, third = (layer for layer in net if isinstance(layer, nn.Linear))
    assert torch.equal(net(x), third(torch.relu(second(torch.relu(first(x))))))


def test_a_wider_block_halves_the_image_and_an_equal_one_keeps_it():
    x = images(1, 8, 6, 6)
    block = resnet.BasicBlock(8, 8, "group")
    torch.testing.assert_close(block(x), torch.relu(x + block.body(x)))
    assert resnet.BasicBlock(8, 16, "group")(x).shape == (1, 16, 3, 3)


@pytest.mark.parametrize(
    ("net", "images_"), [(net, inputs) for name, (net, inputs, _) in NETS.items() if name.endswith("scale")]
)
def test_a_scale_is_strictly_positive_whatever_comes(net, images_, generator):
    net = net(generator=generator)
    (*_, last) = (layer for layer in net if isinstance(layer, nn.Linear))
    nn.init.constant_(last.bias, -1e4)
    scale = net(images(5, *images_))
    assert (scale > 0).all()
    assert (scale < 1e-30).all()
    assert (net(-1e6 * images(5, *images_)) > 0).all()


@every_net
def test_parameters_come_from_the_generator_alone(net, inputs, outputs):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, same, other = (net(generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, first.parameters(), same.parameters()))
    assert not all(map(torch.equal, first.parameters(), other.parameters()))
    net()
    assert not torch.equal(torch.get_rng_state(), state)  # without a generator, torch's default one


def test_one_generator_makes_different_nets(generator):
    first, second = (dl.nets.MLP(3, generator=generator) for _ in range(2))
    assert not torch.equal(first[0].weight, second[0].weight)


@every_net
def test_in_eval_mode_images_do_not_depend_on_their_batch(net, inputs, outputs, generator):
    net, x = net(generator=generator), images(4, *inputs)
    net(x)  # running statistics of a batch norm
    net.eval()
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))
    torch.testing.assert_close(net(x.flip(0)), net(x).flip(0))


def gradients(net, x, used):
    net.zero_grad()
    net(x)[used].square().sum().backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


@pytest.mark.parametrize("net", [dl.nets.ResNet9, dl.nets.ResNet18, dl.nets.WhiteNet])
def test_with_group_norm_images_left_out_change_no_gradient(net, generator):
    net, x, used = net(norm="group", generator=generator).double(), images(4, 3, 8, 8).double(), [0, 2]
    torch.testing.assert_close(gradients(net, x, used), gradients(net, x[used], [0, 1]))


def test_with_batch_norm_they_do(generator):
    net, x, used = dl.nets.ResNet9(generator=generator).double(), images(4, 3, 8, 8).double(), [0, 2]
    with pytest.raises(AssertionError):
        torch.testing.assert_close(gradients(net, x, used), gradients(net, x[used], [0, 1]))


@pytest.mark.parametrize("channels", [1, 3])
def test_whitened_patches_are_uncorrelated_with_unit_variance(channels, generator):
    mixed = nn.functional.conv2d(images(200, 1, 16, 16), torch.rand(channels, 1, 3, 3, generator=generator))
    mixed = (mixed - mixed.mean((0, 2, 3), keepdim=True)) / mixed.std((0, 2, 3), keepdim=True)
    net = dl.nets.WhiteNet(channels, 4, generator=generator).whiten(mixed + 0.1 * torch.randn(mixed.shape))
    found = net[1](mixed + 0.1 * torch.randn(mixed.shape)).movedim(1, -1).flatten(0, -2)
    half = 4 * channels
    torch.testing.assert_close(found[:, :half], -found[:, half:])
    torch.testing.assert_close(found[:, :half].T.cov(), torch.eye(half), atol=0.1, rtol=0)


def test_the_first_filters_are_saved_but_not_trained(generator):
    net = dl.nets.WhiteNet(1, 4, generator=generator).whiten(images(50, 1, 8, 8))
    before = net[1].filters.clone()
    net(images(3, 1, 8, 8)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    assert torch.equal(net[1].filters, before)
    other = dl.nets.WhiteNet(1, 4)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other[1].filters, before)


def test_a_convolution_of_a_whitenet_begins_as_the_identity(generator):
    group = dl.nets.WhiteNet(1, 16, generator=generator)[3]
    x = images(2, 8, 6, 6)
    torch.testing.assert_close(group.conv1(x)[:, :8], x)
    wide = images(2, 16, 6, 6)
    torch.testing.assert_close(group.conv2(wide), wide)


@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_group_norm_takes_any_width_and_keeps_one_pixel_alive(width, generator):
    net = dl.nets.ResNet9(1, width, norm="group", generator=generator)
    assert net(images(2, 1, 8, 8)).any()
    for layer in net.modules():
        if isinstance(layer, nn.GroupNorm):
            assert layer.num_channels // layer.num_groups >= min(16, layer.num_channels)


@pytest.mark.parametrize(
    ("net", "shape", "outputs"),
    [
        (lambda: dl.nets.LeNet(size=16), (1, 16, 16), 500),
        (lambda: dl.nets.LeNet(3, size=17, outputs=7), (3, 17, 17), 7),
        (lambda: dl.nets.ConvScale(1, size=6), (1, 6, 6), None),
        (lambda: dl.nets.ResNet9(1, 4), (1, 8, 8), 32),
        (lambda: dl.nets.WhiteNet(1, 4), (1, 8, 8), 16),
        (lambda: dl.nets.WhiteNet(1, 4), (1, 28, 28), 16),
        (lambda: dl.nets.WhiteNet(1, 4), (1, 2, 9), 16),
        (lambda: dl.nets.ResNet9(1, 4), (1, 28, 28), 32),
        (lambda: dl.nets.ResNet9(1, 4), (1, 9, 30), 32),
        (lambda: dl.nets.ResNet18(1, norm="group"), (1, 1, 1), 512),
        (lambda: dl.nets.ResNet18(1, outputs=10), (1, 28, 28), 10),
    ],
)
def test_small_and_odd_images_are_fine(net, shape, outputs):
    assert net()(images(2, *shape)).shape == ((2,) if outputs is None else (2, outputs))


def test_an_empty_batch_is_fine():
    assert dl.nets.LeNet()(torch.zeros(0, 1, 28, 28)).shape == (0, 500)
    assert dl.nets.LeNetScale()(torch.zeros(0, 1, 28, 28)).shape == (0,)


@pytest.mark.parametrize("name", ["lenet", "conv-scale", "resnet9", "whitenet"])
def test_layouts_change_speed_alone(name, generator):
    net, shape, _ = NETS[name]
    net, x = net(generator=generator), images(4, *shape)
    plain = copy.deepcopy(net)
    for parameter in plain.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    torch.testing.assert_close(net(x), plain(x))
    torch.testing.assert_close(net(x.to(memory_format=torch.channels_last)), net(x))


@pytest.mark.parametrize("name", ["lenet", "conv-scale", "resnet9", "whitenet"])
def test_every_convolution_is_and_stays_channels_last(name):
    net, (channels, side, _), _ = NETS[name]
    net, plain = net(), {key: value.contiguous() for key, value in net().state_dict().items()}
    seen = []
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda layer, inputs, output: seen.append((layer.weight, output)))
    for change in (net.double, net.float, lambda: net.load_state_dict(plain)):
        change()
        net(images(2, channels, side, side).to(next(net.parameters()))).sum().backward()
        torch.optim.Adam(net.parameters()).step()
        assert seen
        for tensor in (tensor for pair in seen for tensor in pair):
            assert tensor.stride()[1] == 1
        seen.clear()


@pytest.mark.parametrize("name", dl.nets.IMAGE_NETS)
def test_nets_are_made_by_name_for_images_of_any_kind(name, generator):
    for channels, side in ((1, 28), (3, 32)):
        net = dl.nets.IMAGE_NETS[name](channels=channels, size=side, generator=generator)
        assert net(images(2, channels, side, side)).dim() == 2


def test_a_net_by_name_takes_its_own_options():
    assert dl.nets.IMAGE_NETS["resnet9"](1, 28, width=4, norm="group")(images(2, 1, 28, 28)).shape == (2, 32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dl.nets.LeNet(size=15), "size is 15, expected at least 16: pad or enlarge the images"),
        (lambda: dl.nets.LeNetScale(size=15), "size is 15, expected at least 16"),
        (lambda: dl.nets.ConvScale(size=5), "size is 5, expected at least 6"),
        (lambda: dl.nets.ResNet9(norm="layer"), "norm is 'layer', expected 'batch' or 'group'"),
        (lambda: dl.nets.ResNet18(norm=None), "norm is None, expected 'batch' or 'group'"),
    ],
)
def test_bad_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("net", "shape", "message"),
    [
        (
            dl.nets.LeNet,
            (2, 3, 28, 28),
            r"\(2, 3, 28, 28\), expected \(B, 1, height, width\) with both sides 28",
        ),
        (dl.nets.LeNet, (2, 1, 32, 32), "with both sides 28; make the net for these images, or resize them"),
        (dl.nets.LeNet, (1, 28, 28), r"\(1, 28, 28\), expected \(B, 1, height, width\)"),
        (dl.nets.LeNetScale, (2, 784), r"\(2, 784\), expected \(B, 1, height, width\)"),
        (dl.nets.ConvScale, (2, 3, 32, 28), "with both sides 32"),
        (lambda: dl.nets.ResNet9(1, 4), (2, 3, 28, 28), r"expected \(B, 1, height, width\) with both sides at least 8"),
        (lambda: dl.nets.ResNet9(1, 4), (2, 1, 28, 7), "both sides at least 8"),
        (dl.nets.ResNet18, (2, 1, 28, 28), r"expected \(B, 3, height, width\) with both sides at least 1"),
    ],
)
def test_images_that_do_not_fit_are_refused(net, shape, message):
    with pytest.raises(ValueError, match=message):
        net()(torch.zeros(shape))


def test_bytes_are_refused():
    with pytest.raises(TypeError, match=r"torch.uint8, expected a floating-point dtype: call .float\(\)"):
        dl.nets.LeNet()(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
