"""How the losses are called: how often they solve, and inside ``torch.func`` and ``torch.compile``."""

import pytest
import torch
from tables import one_hot_argmax
from torch.func import grad, vmap
from truth import TRUTH, as_scores

import directloss as dl

WITH_COST = {
    "hinge": (dl.structured_hinge, {}),
    "ramp": (dl.structured_hinge, {"hope": 0.0}),
    "spo-plus": (dl.spo_plus, {}),
}
CHAIN = next(row for row in TRUTH if len(row.shapes) > 1)


@pytest.mark.parametrize(
    ("rule", "options", "solves"),
    [
        (dl.spo_plus, {}, 2),
        (dl.spo_plus, {"target": torch.eye(4)[:3]}, 1),
        (dl.structured_hinge, {}, 2),
        (dl.structured_hinge, {"hope": 0.5}, 3),
        (dl.structured_hinge, {"return_structure": True}, 3),
        (dl.reinforce, {"samples": 5}, 5),
        (dl.fenchel_young, {"samples": 5}, 5),
        (dl.fenchel_young, {"scale": 0.0}, 1),
    ],
)
def test_a_step_solves_as_often_as_the_reference_says(rule, options, solves):
    solved = []

    def counting(scores):
        solved.append(scores.shape[:-1].numel() / 3)
        return one_hot_argmax(scores)

    scores = torch.randn(3, 4, requires_grad=True)
    result = rule(scores, torch.eye(4)[1:], dl.custom(counting), **options)
    (result[0] if isinstance(result, tuple) else result).backward()
    assert sum(solved) == solves


@pytest.mark.parametrize("name", [*WITH_COST, "fenchel-young", "reinforce"])
def test_vmap_of_grad_reaches_every_part(name):
    parts, cost = CHAIN.scores(5), CHAIN.cost(5)
    noise = CHAIN.cost(3, seed=4)

    class Drawn(dl.Normal):
        def sample(self, shape, **options):
            return noise if len(shape) == 3 else noise.unsqueeze(1).expand(shape)

    if name in WITH_COST:
        rule, options, given = *WITH_COST[name], cost
    elif name == "reinforce":
        rule, options, given = dl.reinforce, {"noise": Drawn(), "samples": 3}, cost
    else:
        rule, options, given = (
            dl.fenchel_young,
            {"noise": Drawn(), "samples": 3},
            CHAIN.structure.solve((cost, *parts[1:])),
        )

    def loss(unary, transitions, given):
        return rule((unary, transitions), given, CHAIN.structure, reduction="sum", **options)

    leaves = [part.clone().requires_grad_() for part in parts]
    wanted = torch.autograd.grad(loss(*leaves, given), leaves)
    torch.testing.assert_close(vmap(grad(loss, argnums=(0, 1)))(*parts, given), wanted)
    # What is not mapped is shared.
    shared = vmap(loss, in_dims=(None, None, 0))(parts[0][0], parts[1][0], given)
    each = torch.stack([loss(parts[0][0], parts[1][0], one) for one in given])
    torch.testing.assert_close(shared, each)


def test_vmap_maps_the_data_of_a_structure():
    generator = torch.Generator().manual_seed(0)
    scores, cost = (torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(6, 5, generator=generator) < 0.7
    mask[:, :2] = True
    target = dl.Subset(2, mask=mask).solve(cost)
    for rule, given in ((dl.structured_hinge, cost), (dl.spo_plus, cost), (dl.fenchel_young, target)):
        options = {"scale": 0.0} if rule is dl.fenchel_young else {}

        def loss(scores, given, mask, rule=rule, options=options):
            return rule(scores, given, dl.Subset(2, mask=mask), reduction="sum", **options)

        leaf = scores.clone().requires_grad_()
        loss(leaf, given, mask).backward()
        torch.testing.assert_close(vmap(grad(loss))(scores, given, mask), leaf.grad)
    labels = dl.Choice(mask=mask).solve(cost)
    value = dl.smooth_top_k(scores, labels, dl.Subset(2, mask=mask), reduction="none")
    mapped = vmap(lambda s, y, m: dl.smooth_top_k(s, y, dl.Subset(2, mask=m)))(scores, labels, mask)
    torch.testing.assert_close(mapped, value)


def test_compiled_training_steps_give_the_same_gradient():
    net = torch.nn.Linear(2, 4)
    x, cost = torch.randn(5, 2), torch.randn(5, 4)

    def step(x):
        return dl.spo_plus(net(x), cost, dl.Subset(2))

    gradients = []
    for run in (step, torch.compile(step, backend="aot_eager")):
        net.zero_grad()
        run(x).backward()
        gradients.append(net.weight.grad.clone())
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", [*WITH_COST, "fenchel-young", "reinforce"])
def test_factors_may_be_shared_and_scores_may_lack_batch_axes_that_factors_have(name):
    """The gradient of a shared factor is the sum of those of its copies."""
    unary, own = CHAIN.scores(4)
    cost, noise = CHAIN.cost(4), CHAIN.cost(3, 4, seed=4)
    target = CHAIN.structure.solve((cost, own))
    rule, options, given = {
        **{key: (*both, cost) for key, both in WITH_COST.items()},
        "fenchel-young": (dl.fenchel_young, {"noise": noise}, target),
        "reinforce": (dl.reinforce, {"samples": 3}, cost),
    }[name]

    def run(factor, **more):
        leaf = factor.clone().requires_grad_()
        if name == "reinforce":
            more["generator"] = torch.Generator().manual_seed(0)
        rule(as_scores((unary, leaf)), given, CHAIN.structure, reduction="sum", **options, **more).backward()
        return leaf.grad

    torch.testing.assert_close(run(own[0]), run(own[:1].expand_as(own)).sum(0))
