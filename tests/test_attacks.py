"""What an attack on the first version found, each with its cure."""

import copy
import pickle

import pytest
import torch
from tables import direct_loss, every_structure
from torch.func import grad, vmap

import directloss as dl


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


NETS = {
    "linear": torch.nn.Linear(3, 4),
    "mlp": torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)),
    "square": torch.nn.Sequential(torch.nn.Bilinear(1, 1, 4), torch.nn.Softplus()),
}


def scores_of(net, x):
    return (
        net[0](x[:, :1], x[:, 1:2])
        if isinstance(net, torch.nn.Sequential) and isinstance(net[0], torch.nn.Bilinear)
        else net(x)
    )


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_second_derivatives_raise_when_they_are_taken_through_any_net(name, scale):
    net, x = copy.deepcopy(NETS[name]), drawn(5, 3)
    loss = dl.direct_loss(scores_of(net, x), drawn(5, 4, seed=1), dl.Choice(), epsilon=30.0, scale=scale)
    gradients = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    assert any(gradient.any() for gradient in gradients)
    with pytest.raises(RuntimeError, match="second derivative was taken through a decision"):
        sum(gradient.square().sum() for gradient in gradients).backward()


def test_second_derivatives_raise_through_neighbours():
    net, x, labels = torch.nn.Linear(3, 2), drawn(12, 3), torch.arange(12) % 3
    loss = dl.NeighborLoss(2)(net(x), labels)
    (gradient,) = torch.autograd.grad(loss, net.weight, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivative|differentiate twice"):
        gradient.sum().backward()


def test_second_derivatives_to_the_scale_raise():
    log_scale = torch.zeros(5, requires_grad=True)
    loss = dl.direct_loss(drawn(5, 4), drawn(5, 4, seed=1), dl.Choice(), epsilon=3.0, scale=log_scale.exp(), samples=9)
    (gradient,) = torch.autograd.grad(loss, log_scale, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()


def test_transforms_take_first_derivatives_and_refuse_second_ones():
    x, cost, weight = drawn(3), drawn(4, seed=1), drawn(4, 3, seed=2)

    def loss(weight):
        return dl.direct_loss(weight @ x, cost, dl.Choice(), epsilon=30.0)

    leaf = weight.clone().requires_grad_()
    loss(leaf).backward()
    torch.testing.assert_close(grad(loss)(weight), leaf.grad)
    torch.testing.assert_close(vmap(grad(loss))(weight.expand(2, 4, 3))[1], leaf.grad)
    with pytest.raises(RuntimeError, match="second derivative"):
        grad(lambda weight: grad(loss)(weight).sum())(weight)
    with pytest.raises(RuntimeError, match="second derivative"):
        vmap(grad(lambda weight: grad(loss)(weight).sum()))(weight.expand(2, 4, 3))


@every_structure
@pytest.mark.parametrize(
    ("dtype", "epsilon"),
    [
        (torch.float16, 1e-5),
        (torch.float16, 1e-9),
        (torch.float32, 1e-40),
        (torch.float32, -1e-40),
        (torch.double, 1e-300),
    ],
    ids=str,
)
def test_an_epsilon_whose_inverse_overflows_gives_zero_where_there_is_no_difference(row, dtype, epsilon):
    cost = row.scores(4, seed=1, dtype=dtype)
    for at in (epsilon, torch.full((4,), epsilon, dtype=torch.float64)):
        scores = row.scores(4, dtype=dtype).requires_grad_()
        scale = torch.ones(4, dtype=dtype, requires_grad=True)
        direct_loss(scores, cost, row.structure, epsilon=at, scale=scale, samples=3).sum().backward()
        # In half precision sums may tie, so that even such an epsilon makes a difference.
        assert not scores.grad.isnan().any()
        if dtype != torch.float16:
            assert not scores.grad.any()
            assert not scale.grad.any()


@every_structure
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_another_default_device_changes_nothing(row, device):
    results = []
    for place in ("cpu", device):
        scores, scale = row.scores(4, dtype=torch.float32).requires_grad_(), torch.ones(4, requires_grad=True)
        generator, cost = torch.Generator().manual_seed(0), row.scores(4, seed=1, dtype=torch.float32)
        with torch.device(place):
            loss = dl.direct_loss(
                scores, cost, row.structure, epsilon=1.0, sides="both", scale=scale, samples=3, generator=generator
            )
            loss.backward()
            y = row.structure.solve(scores)
        results.append((loss.detach(), scores.grad, scale.grad, y))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("epsilon", [-1.0, dl.GrowingEpsilon(-1.0)], ids=["number", "adaptive"])
def test_vmap_over_the_module_is_vmap_over_the_function_and_leaves_its_state(epsilon):
    criterion = dl.DirectLoss(dl.Subset(2), epsilon=copy.deepcopy(epsilon), sides="both")
    before = copy.deepcopy(criterion.state_dict())
    scores, cost = drawn(6, 5), drawn(6, 5, seed=1)
    leaf = scores.clone().requires_grad_()
    direct_loss(leaf, cost, dl.Subset(2), epsilon=-1.0, sides="both").sum().backward()
    torch.testing.assert_close(vmap(grad(criterion))(scores, cost), leaf.grad)
    assert str(criterion.state_dict()) == str(before)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_casting_a_criterion_keeps_its_epsilon(cast):
    criterion = dl.DirectLoss(dl.Choice(), epsilon=dl.GrowingEpsilon(-0.1))
    getattr(criterion, cast)()
    assert float(criterion.epsilon) == -0.1
    assert criterion.epsilon.value.dtype == torch.float64
    criterion.to("cpu", torch.float16)
    assert float(criterion.epsilon) == -0.1


def test_recomputation_does_not_adapt_epsilon_a_second_time():
    criterion = dl.DirectLoss(dl.Choice(), epsilon=dl.GrowingEpsilon(-0.5, growth=1.5))
    scores, cost = torch.tensor([[0.0, 9.0, -9.0]], requires_grad=True), torch.tensor([0.0, 1.0, 1.0])
    # The square keeps its input, for which the criterion must be called again.
    loss = torch.utils.checkpoint.checkpoint(lambda s: criterion(2 * s, cost).square(), scores, use_reentrant=False)
    assert float(criterion.epsilon) == -0.75
    loss.backward()
    assert float(criterion.epsilon) == -0.75


def test_without_gradients_a_criterion_learns_nothing():
    criterion = dl.DirectLoss(dl.Choice(), epsilon=dl.GrowingEpsilon(-0.5, growth=1.5))
    scores, cost = torch.tensor([[0.0, 9.0, -9.0]], requires_grad=True), torch.tensor([0.0, 1.0, 1.0])
    with torch.no_grad():
        criterion(scores, cost)
    criterion(scores.detach(), cost)
    criterion.eval()(scores, cost)
    assert float(criterion.epsilon) == -0.5
    criterion.train()(scores, cost)
    assert float(criterion.epsilon) == -0.75


@every_structure
def test_criteria_can_be_pickled_and_copied(row):
    criterion = dl.DirectLoss(row.structure, epsilon=dl.GrowingEpsilon(-0.5), samples=2, scale=1.0)
    scores, cost = row.scores(3).requires_grad_(), row.scores(seed=1)
    others = [copy.deepcopy(criterion)]
    if "lambda" not in repr(row.structure) and not row.name.startswith("custom"):
        others.append(pickle.loads(pickle.dumps(criterion)))
    for other in others:
        one, two = (c(scores, cost, generator=torch.Generator().manual_seed(0)) for c in (criterion, other))
        assert torch.equal(one, two)


def test_costs_of_labels_with_two_batch_axes_and_one_neighbour():
    labels, queries = torch.tensor([[[0, 1, 2], [1, 1, 0]]]), torch.tensor([[0, 1]])
    assert dl.costs.wrong_label(labels, queries, 1).tolist() == [[[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]]
    assert dl.costs.wrong_label(labels, queries, 2).tolist() == [[[0.0, 0.5, 0.5], [0.0, 0.0, 0.5]]]
    assert dl.costs.wrong_label(labels[0, 0], queries, 1).tolist() == [[[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]]
    distances = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    assert dl.costs.label_distance(distances, labels, queries).tolist() == [[[-1.0, 0.0, 0.0], [-4.0, -5.0, 0.0]]]


@pytest.mark.parametrize("structure", [dl.Choice(), dl.Finite(2 * torch.eye(4))], ids=["ones", "values"])
def test_loss_alone_is_differentiable(structure):
    seen = []

    def call(scores):
        loss, y = dl.direct_loss(scores, drawn(3, 4, seed=1), structure, epsilon=1.0, return_structure=True)
        seen.append((loss.requires_grad, y.requires_grad))
        return loss

    call(drawn(3, 4).requires_grad_())
    grad(call)(drawn(3, 4))
    assert seen == [(True, False)] * 2


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@every_structure
def test_reductions_are_those_of_torch(row, reduction):
    scores, cost = row.scores(2, 3), row.scores(2, 3, seed=1)
    for sides in ("one", "both"):
        results = []
        for make in (
            lambda leaf, sides: dl.direct_loss(
                leaf, cost, row.structure, epsilon=-1.0, sides=sides, reduction=reduction
            ),
            lambda leaf, sides: getattr(
                direct_loss(leaf, cost, row.structure, epsilon=-1.0, sides=sides),
                {"none": "clone"}.get(reduction, reduction),
            )(),
            lambda leaf, sides: dl.DirectLoss(row.structure, epsilon=-1.0, sides=sides, reduction=reduction)(
                leaf, cost
            ),
        ):
            leaf = scores.clone().requires_grad_()
            loss = make(leaf, sides)
            weights = torch.arange(1.0, 1 + loss.numel(), dtype=loss.dtype).reshape(loss.shape)
            (loss * weights).sum().backward()
            results.append((loss.detach(), leaf.grad))
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(results[0], results[2])
    with pytest.raises(ValueError, match="reduction is 'max', expected 'mean', 'sum' or 'none'"):
        dl.direct_loss(scores, cost, row.structure, epsilon=1.0, reduction="max")


@every_structure
def test_an_epsilon_for_each_instance_is_that_of_the_instance_alone(row):
    scores, cost, noise = row.scores(4), row.scores(4, seed=1), row.scores(3, 4, seed=2)
    epsilons = torch.tensor([-1.0, 2.0, 0.3, -4.0])
    for sides in ("one", "both"):
        leaf, scale = scores.clone().requires_grad_(), torch.ones(4, dtype=torch.float64, requires_grad=True)
        direct_loss(leaf, cost, row.structure, epsilon=epsilons, sides=sides, scale=scale, noise=noise).sum().backward()
        for index, epsilon in enumerate(epsilons.tolist()):
            own, own_scale = (
                scores[index].clone().requires_grad_(),
                torch.ones((), dtype=torch.float64, requires_grad=True),
            )
            direct_loss(
                own, cost[index], row.structure, epsilon=epsilon, sides=sides, scale=own_scale, noise=noise[:, index]
            ).backward()
            torch.testing.assert_close(leaf.grad[index], own.grad, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(scale.grad[index], own_scale.grad, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"epsilon has shape \(3,\).*one for each instance \(4,\)"):
        direct_loss(scores, cost, row.structure, epsilon=epsilons[:3])
    with pytest.raises(ValueError, match="epsilon has 0, NaN or infinity"):
        direct_loss(scores, cost, row.structure, epsilon=epsilons * torch.tensor([1.0, 0, 1, 1]))
