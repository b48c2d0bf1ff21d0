"""What every loss and every layer promises, over the whole tables."""

import copy
import functools
import pickle

import pytest
import torch
from tables import (
    STRUCTURES,
    LayerRow,
    LossRow,
    every_estimate,
    every_layer,
    every_loss,
    every_loss_and_structure,
    every_misfit,
)
from torch.func import vmap

import directloss as dl

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def supervision(loss: LossRow, row, *batch, seed=1, dtype=torch.float64):
    drawn = row.scores(*batch, seed=seed, dtype=dtype)
    return drawn if loss.supervision == "cost" else loss.target_of(row).solve(drawn)


def run(loss: LossRow, row, scores, given, structure=None, **options):
    """The loss of each instance, and the gradient of their sum."""
    leaf = scores.clone().requires_grad_()
    if loss.random:
        options.setdefault("generator", torch.Generator().manual_seed(0))
    value = loss.call(leaf, given, structure or row.structure, reduction="none", **{**loss.options, **options})
    value.sum().backward()
    return value.detach(), leaf.grad


@every_misfit
def test_a_loss_names_the_structures_that_fit(loss, row):
    with pytest.raises(TypeError, match="it takes"):
        loss.call(row.scores(2), row.scores(2, seed=1), row.structure, **loss.options)


@every_loss_and_structure
def test_a_loss_takes_any_batch_axes(loss, row):
    scores, given = row.scores(2, 3), supervision(loss, row, 2, 3)
    options = [{}, {}, {}]
    if loss.random:
        noise = row.scores(2, 2, 3, seed=5)
        options = [{"noise": loss.draws(draws)} for draws in (noise, noise.flatten(1, 2), noise[:, 1, 2])]
    value, gradient = run(loss, row, scores, given, **options[0])
    assert value.shape == (2, 3)
    other = run(loss, row, scores.flatten(0, 1), given.flatten(0, 1), **options[1])
    torch.testing.assert_close((value.flatten(), gradient.flatten(0, 1)), other)
    torch.testing.assert_close(run(loss, row, scores[1, 2], given[1, 2], **options[2]), (value[1, 2], gradient[1, 2]))


@every_loss_and_structure
def test_an_empty_batch_has_no_loss(loss, row):
    value, gradient = run(loss, row, row.scores(0), supervision(loss, row, 0))
    assert value.shape == (0,)
    assert gradient.shape == (0, *row.entries)


@every_loss_and_structure
def test_a_loss_keeps_the_dtype_of_its_scores(loss, row):
    for dtype in FLOATS:
        value, gradient = run(loss, row, row.scores(4, dtype=dtype), supervision(loss, row, 4, dtype=dtype))
        assert value.dtype == gradient.dtype == dtype
        assert torch.isfinite(value).all()


@every_loss_and_structure
def test_randomness_comes_only_from_the_generator(loss, row):
    scores, given = row.scores(4), supervision(loss, row, 4)
    state = torch.get_rng_state()
    assert all(
        torch.equal(*pair) for pair in zip(run(loss, row, scores, given), run(loss, row, scores, given), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), state)
    if loss.random:
        other = run(loss, row, scores, given, generator=torch.Generator().manual_seed(1), samples=2)
        assert row.structure.count(row.scores()) == 1 or not torch.equal(other[0], run(loss, row, scores, given)[0])


@every_loss
def test_every_option_changes_something(loss):
    row = next(row for row in STRUCTURES if loss.fits(row))
    scores, given = row.scores(30), supervision(loss, row, 30)
    plain = torch.cat([part.flatten() for part in run(loss, row, scores, given)])
    for option, value in loss.changes.items():
        changed = torch.cat([part.flatten() for part in run(loss, row, scores, given, **{option: value})])
        assert not torch.equal(plain, changed), option


@every_loss_and_structure
def test_vmap_of_a_loss_is_the_batched_call(loss, row):
    scores, given, options = row.scores(4), supervision(loss, row, 4), {}
    if loss.random:
        noise = row.scores(2, seed=5)
        options["noise"] = loss.draws(noise.unsqueeze(1).expand(2, *scores.shape))
    value, gradient = run(loss, row, scores, given, **options)
    if loss.random:
        options["noise"] = loss.draws(noise)
    call = functools.partial(loss.call, structure=row.structure, **{**loss.options, **options})
    torch.testing.assert_close(vmap(lambda s, g: call(s, g))(scores, given), value)
    torch.testing.assert_close(vmap(torch.func.grad(lambda s, g: call(s, g)))(scores, given), gradient)


@every_loss_and_structure
def test_a_loss_refuses_bad_input_and_returns_its_structure_on_demand(loss, row):
    scores, given = row.scores(3), supervision(loss, row, 3)
    bad = scores.clone()
    bad.view(-1)[1] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite"):
        loss.call(bad, given, row.structure, **loss.options)
    with pytest.raises(TypeError, match="floating-point"):
        loss.call(scores.long(), given, row.structure, **loss.options)
    with pytest.raises(TypeError, match="expected a structure"):
        loss.call(scores, given, "choice", **loss.options)
    with pytest.raises(ValueError, match="reduction is 'most'"):
        loss.call(scores, given, row.structure, reduction="most", **loss.options)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        loss.call(scores, torch.zeros(3, *row.entries[:-1], row.entries[-1] + 1), row.structure, **loss.options)
    value, y = loss.call(scores, given, row.structure, return_structure=True, **loss.options)
    assert value.shape == ()
    assert y.shape[-len(scores.shape) :] == scores.shape


@every_loss
def test_a_second_derivative_is_true_or_raises(loss):
    row = next(row for row in STRUCTURES if loss.fits(row))
    scores, given = row.scores(3), supervision(loss, row, 3)

    def call(scores):
        generator = {"generator": torch.Generator().manual_seed(0)} if loss.random else {}
        return loss.call(scores, given, row.structure, reduction="sum", **loss.options, **generator)

    leaf = scores.clone().requires_grad_()
    if loss.smooth:
        assert torch.autograd.gradgradcheck(call, leaf)
        return
    (gradient,) = torch.autograd.grad(call(leaf), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.func.grad(lambda scores: torch.func.grad(call)(scores).sum())(scores)
    with torch.no_grad():  # which changes no value
        torch.testing.assert_close(call(scores), call(leaf).detach())


@every_loss
def test_parameters_may_change_between_a_loss_and_its_gradient(loss):
    row = next(row for row in STRUCTURES if loss.fits(row))
    parameter = row.scores(3).requires_grad_()
    given, options = supervision(loss, row, 3), {**loss.options}
    if loss.random:
        options["noise"] = loss.draws(row.scores(2, 3, seed=5))
    value = loss.call(parameter + 0, given, row.structure, **options)
    with torch.no_grad():
        parameter.add_(1.0)
    value.backward()
    assert torch.isfinite(parameter.grad).all()


@every_loss
def test_losses_travel(loss):
    call = functools.partial(loss.call, **loss.options)
    for other in (pickle.loads(pickle.dumps(call)), copy.deepcopy(call)):
        assert other.func is loss.call


def draw(layer: LayerRow, *batch, seed=0, dtype=torch.float64):
    return torch.randn(*batch, *layer.entries, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relax(layer: LayerRow, scores, **options):
    arguments = (scores,) if layer.structure is None else (scores, layer.structure)
    return layer.call(*arguments, **{**layer.options, **options})


def weighted(y, weight):
    """A linear loss of any layer's value: some weight for each of its entries."""
    return (y.flatten() * weight[torch.arange(y.numel()) % len(weight)]).sum()


def relaxed_gradient(layer: LayerRow, scores, **options):
    """The gradient of the same linear loss of every instance of a batch."""
    leaf, weight = scores.clone().requires_grad_(), draw(layer, seed=3).flatten()
    sum(weighted(y, weight) for y in relax(layer, leaf, **options)).backward()
    return leaf.grad


@every_estimate
def test_a_second_derivative_through_a_decision_raises(layer):
    scores = draw(layer, 3).requires_grad_()
    (gradient,) = torch.autograd.grad((relax(layer, scores) ** 2).sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.func.grad(lambda one: torch.func.grad(lambda s: (relax(layer, s) ** 2).sum())(one).sum())(draw(layer))


@every_layer
def test_a_layer_takes_any_batch_axes(layer):
    scores = draw(layer, 2, 3)
    y = relax(layer, scores)
    assert y.shape[:2] == (2, 3)
    torch.testing.assert_close(relax(layer, scores.flatten(0, 1)), y.flatten(0, 1))
    torch.testing.assert_close(relax(layer, scores[1, 2]), y[1, 2])


@every_layer
def test_a_layer_is_differentiable(layer):
    if not layer.exact:  # a gradient that is not the derivative of the value: tests of its own say what it is
        assert relaxed_gradient(layer, draw(layer, 20)).any()
        return
    assert torch.autograd.gradcheck(lambda scores: relax(layer, scores), draw(layer, 2).requires_grad_())


@every_layer
def test_an_empty_batch_gives_an_empty_result(layer):
    scores = draw(layer, 0).requires_grad_()
    y = relax(layer, scores)
    assert len(y) == 0
    y.sum().backward()
    assert scores.grad.shape == scores.shape


@every_layer
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_layer_keeps_the_dtype_of_its_scores(layer, dtype):
    scores = draw(layer, 3, dtype=dtype).requires_grad_()
    y = relax(layer, scores)
    y.sum().backward()
    assert y.dtype == scores.grad.dtype == dtype
    assert torch.isfinite(y).all()


@every_layer
def test_every_option_of_a_layer_changes_something(layer):
    def both(**options):
        scores = draw(layer, 5)
        return [relax(layer, scores, **options), relaxed_gradient(layer, scores, **options)]

    plain = both()
    for option, value in layer.changes.items():
        changed = both(**{option: value})
        same = [one.shape == other.shape and torch.equal(one, other) for one, other in zip(plain, changed, strict=True)]
        assert not all(same), option


@every_layer
def test_vmap_of_a_layer_is_the_batched_call(layer):
    scores = draw(layer, 4)
    torch.testing.assert_close(vmap(lambda one: relax(layer, one))(scores), relax(layer, scores))
    weight = draw(layer, seed=3).flatten()
    gradient = vmap(torch.func.grad(lambda one: weighted(relax(layer, one), weight)))(scores)
    torch.testing.assert_close(gradient, relaxed_gradient(layer, scores))


@every_layer
def test_a_layer_refuses_bad_input(layer):
    bad = draw(layer, 3)
    bad.view(-1)[1] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite"):
        relax(layer, bad)
    with pytest.raises(TypeError, match="floating-point"):
        relax(layer, draw(layer, 3).long())
    with pytest.raises(TypeError, match=r"expected a torch.Tensor"):
        relax(layer, draw(layer, 3).tolist())
    if "temperature" in layer.changes:
        with pytest.raises(ValueError, match="temperature is 0"):
            relax(layer, draw(layer, 3), temperature=0)


@every_layer
def test_a_layer_names_the_structures_that_fit(layer):
    if layer.structure is None:
        return
    if layer.wrong is None:
        with pytest.raises(TypeError, match="expected a structure"):
            layer.call(draw(layer, 3), "choice")
        return
    kind = type(layer.structure).__name__
    with pytest.raises(TypeError, match=f"does not relax .* it takes .*{kind}"):
        layer.call(draw(layer, 3), layer.wrong)
    with pytest.raises(TypeError, match=f"the class {kind}; write dl.{kind}"):
        layer.call(draw(layer, 3), type(layer.structure))


@every_layer
def test_layers_travel(layer):
    assert pickle.loads(pickle.dumps(layer.call)) is layer.call
    assert copy.deepcopy(layer.call) is layer.call


def test_perturbing_is_one_batch_axis_more_for_every_layer():
    draws = torch.Generator().manual_seed(0)
    square, row = (dl.perturb(torch.zeros(4, *entries), samples=2, generator=draws) for entries in ((3, 3), (5,)))
    assert dl.sinkhorn(square, dl.Matching()).shape == (2, 4, 3, 3)
    assert dl.neuralsort(row).shape == (2, 4, 5, 5)
    assert dl.relaxed_subset(row, dl.Subset(2)).shape == (2, 4, 5)
