"""Losses that are the gradient of something: equal to it, computed by enumeration, and to its finite differences."""

import math

import pytest
import torch
from oracles import Estimate
from truth import (
    SIGMA,
    TRUTH,
    as_scores,
    assert_true,
    assert_within,
    differences,
    drawn,
    every_truth,
    gradients,
    values,
)

import directloss as dl

SEEDS = range(3)
SIDES = [(1.0, math.inf), (0.0, math.inf), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 2.0)]
sides = pytest.mark.parametrize(("fear", "hope"), SIDES)


def regrets(row, cost):
    """``<cost, y> - <cost, y*>`` of every structure, and which is y*."""
    every = (row.every[0] * cost).flatten(1).sum(1)
    return every - every.min(), every.argmin()


@every_truth
@sides
def test_the_hinge_is_the_difference_of_two_maxima(row, fear, hope):
    for seed in SEEDS:
        parts, cost = row.scores(seed=seed), row.cost(seed=seed + 100)
        regret, best = regrets(row, cost)

        def value(*parts, regret=regret, best=best):
            plain = values(row, parts)
            hoped = plain[best] if hope == math.inf else (plain - hope * regret).max()
            return (plain + fear * regret).max() - hoped

        def loss(*parts, cost=cost):
            return dl.structured_hinge(as_scores(parts), cost, row.structure, fear=fear, hope=hope)

        assert_true(loss, value, *parts)
        predicted = values(row, parts).argmax()
        assert value(*parts) >= fear * regret[predicted] - 1e-12


@every_truth
def test_spo_plus_is_the_formula_of_its_paper_for_predicted_costs(row):
    for seed in SEEDS:
        parts, cost = row.scores(seed=seed), row.cost(seed=seed + 100)
        regret, best = regrets(row, cost)
        true = (row.every[0] * cost).flatten(1).sum(1)

        def value(*parts, true=true, best=best):  # what the decision minimises, predicted: the scores turned over
            predicted = values(row, [-part for part in parts])
            return (true - 2 * predicted).max() + 2 * predicted[best] - true[best]

        found = assert_true(lambda *parts, cost=cost: dl.spo_plus(as_scores(parts), cost, row.structure), value, *parts)
        worst = (true - 2 * values(row, [-part for part in parts])).argmax()
        torch.testing.assert_close(found[0], 2 * (row.every[0][worst] - row.every[0][best]).double())
        assert value(*parts) >= regret[values(row, parts).argmax()] - 1e-12
        perfect = (-cost, *(torch.zeros_like(factor) for factor in parts[1:]))
        assert abs(dl.spo_plus(as_scores(perfect), cost, row.structure)) < 1e-12


@every_truth
def test_a_known_best_structure_need_not_be_solved_for(row):
    parts, cost = row.scores(6), row.cost(6)
    best = row.structure.solve(as_scores((-cost, *(torch.zeros_like(factor) for factor in parts[1:]))))
    for rule in (dl.spo_plus, dl.structured_hinge):
        plain, given = (
            gradients(lambda *parts, o=options: rule(as_scores(parts), cost, row.structure, **o), parts)  # noqa: B023
            for options in ({}, {"target": best})
        )
        torch.testing.assert_close(plain, given)
        other, y = rule(as_scores(parts), cost, row.structure, return_structure=True)
        torch.testing.assert_close(other, plain[0])
        assert torch.equal(y, row.structure.solve(as_scores(parts)))


@every_truth
def test_the_limits_of_the_hinge(row):
    parts, cost = row.scores(8), row.cost(8)

    def run(rule, *given, factor=1.0, **options):
        value, found = gradients(
            lambda *parts: rule(as_scores(parts), *given, row.structure, reduction="sum", **options), parts
        )
        return value * factor, [gradient * factor for gradient in found]

    # SPO+ is the hinge of doubled scores.
    doubled = run(
        lambda scores, *rest, **options: dl.structured_hinge(
            tuple(2 * part for part in scores) if isinstance(scores, tuple) else 2 * scores, *rest, **options
        ),
        cost,
    )
    torch.testing.assert_close(run(dl.spo_plus, cost), doubled)
    # Hope without bound is the best structure itself.
    torch.testing.assert_close(
        run(dl.structured_hinge, cost, hope=1e6), run(dl.structured_hinge, cost), rtol=1e-6, atol=1e-6
    )
    # The perceptron is the Fenchel-Young loss without noise.
    best = row.structure.solve(as_scores((-cost, *(torch.zeros_like(factor) for factor in parts[1:]))))
    perceptron = run(dl.structured_hinge, cost, fear=0.0)
    torch.testing.assert_close(run(dl.fenchel_young, best, scale=0.0), perceptron)
    # The ramp loss, divided by its cost's weight, has the gradient of the direct loss.
    for epsilon in (0.3, 2.0):
        for hope, side, width in ((0.0, "one", epsilon), (epsilon, "both", 2 * epsilon)):
            direct = run(dl.direct_loss, cost, epsilon=epsilon, sides=side)
            ramp = run(dl.structured_hinge, cost, fear=epsilon, hope=hope, factor=1 / width)
            torch.testing.assert_close(ramp[1], direct[1])


@pytest.mark.parametrize("weights", [{"fear": -1.0}, {"hope": -1.0}, {"fear": 0.0, "hope": 0.0}, {"fear": math.inf}])
def test_weights_that_are_no_loss_are_refused(weights):
    with pytest.raises(ValueError, match="expected numbers >= 0"):
        dl.structured_hinge(torch.zeros(3), torch.zeros(3), dl.Choice(), **weights)


def test_rules_with_a_linear_cost_name_those_that_take_a_function():
    for rule in (dl.structured_hinge, dl.spo_plus):
        with pytest.raises(TypeError, match=r"not a function; dl\.direct_loss and dl\.reinforce"):
            rule(torch.zeros(3), lambda y: y.sum(-1), dl.Choice())


def target_of(row, seed):
    return row.every[0][seed % len(row.every[0])]


@every_truth
@pytest.mark.parametrize("shape", ["one", "entries"])
def test_the_fenchel_young_loss_of_given_draws_is_piecewise_linear(row, shape):
    for seed in SEEDS:
        parts, target = row.scores(seed=seed), target_of(row, seed)
        scale = torch.tensor(0.7).double() if shape == "one" else 0.5 + row.cost(seed=seed).abs()
        noise = row.cost(6, seed=seed + 100)
        index = [torch.equal(y, target) for y in row.every[0]].index(True)

        def value(scale, *parts, noise=noise, index=index):
            under = [values(row, (parts[0] + scale * one, *parts[1:])) for one in noise]
            return torch.stack([each.max() - each[index] for each in under]).mean()

        def loss(scale, *parts, noise=noise, target=target):
            return dl.fenchel_young(as_scores(parts), target, row.structure, scale=scale, noise=noise)

        assert_true(loss, value, scale, *parts)


@every_truth
def test_the_fenchel_young_loss_has_the_true_value_and_gradient_in_expectation(row):
    parts, target = row.scores(seed=3), target_of(row, 3)
    index = [torch.equal(y, target) for y in row.every[0]].index(True)
    exact = dl.exact(
        as_scores(parts), row.cost(), row.structure, SIGMA, points=1 << 11, generator=torch.Generator().manual_seed(0)
    )
    value, found = drawn(
        dl.fenchel_young, row, parts, target, 2000, samples=20, generator=torch.Generator().manual_seed(1)
    )
    assert (value >= -1e-12).all()
    assert_within(Estimate.of(value[:, None]), exact.best.value - values(row, parts)[index], exact.best.error)
    p, error = exact.probabilities.value, exact.probabilities.error
    means, errors = (
        [torch.einsum("n,n...->...", weight, own.abs() if weight is error else own) for own in row.every]
        for weight in (p, error)
    )
    # max_y <theta, y> is homogeneous: E[<gamma, y>] is what is left of it.
    left = exact.best.value - sum((part * mean).sum() for part, mean in zip(parts, means, strict=True))
    unsure = exact.best.error + sum((part.abs() * away).sum() for part, away in zip(parts, errors, strict=True))
    true = [
        (mean - own[index]).sum_to_size(part.shape) for part, mean, own in zip(parts, means, row.every, strict=True)
    ]
    unsure_parts = [away.sum_to_size(part.shape) for part, away in zip(parts, errors, strict=True)]
    assert_within(
        Estimate.of(found),
        torch.cat([tensor.flatten() for tensor in (*true, left / SIGMA)]),
        torch.cat([tensor.flatten() for tensor in (*unsure_parts, unsure / SIGMA)]),
    )


def test_the_fenchel_young_loss_of_a_choice_is_the_cross_entropy():
    scores, label = torch.tensor([0.5, -0.3, 0.2, 1.0]).double(), torch.tensor(1)
    every = dl.exact(scores, scores, dl.Choice(), SIGMA, points=1 << 12, generator=torch.Generator().manual_seed(0))
    exact = SIGMA * torch.nn.functional.cross_entropy(scores / SIGMA, label)
    assert abs(every.best.value - scores[label] - exact) < 4 * every.best.error
    assert dl.exact(scores, scores, dl.Choice(), 0.0).best.value == 1.0


@every_truth
def test_the_conjugate_of_a_structure_is_zero(row):
    """The smallest that the loss of given draws can be is 0, and scores that show the target reach it."""
    target = target_of(row, 3)
    zero_one = ((target == 0) | (target == 1)).all()
    clear = 2 * target - 1 if zero_one else target
    parts = (1e3 * clear, *(torch.zeros_like(factor) for factor in row.scores()[1:]))
    draws = row.cost(100, seed=5)
    assert abs(dl.fenchel_young(as_scores(parts), target, row.structure, noise=draws)) < 1e-10


LISTS = [row for row in TRUTH if len(row.shapes) == 1]
every_list = pytest.mark.parametrize("row", LISTS, ids=lambda row: row.name)


def some_of(row):
    """A pool that knows a third of the structures and solves no more, and those."""
    known = row.every[0][:: 3 if len(row.every[0]) > 6 else 1].double()
    pool = dl.Pool(row.structure, solve_share=0.0)
    pool.add(known)
    return pool, known.flatten(1)


@every_list
@pytest.mark.parametrize("form", ["nce", "map"])
@pytest.mark.parametrize("with_cost", [False, True])
def test_contrastive_losses_are_their_formulas(row, form, with_cost):
    pool, known = some_of(row)
    for seed in SEEDS:
        (scores,), cost, target = row.scores(seed=seed), row.cost(seed=seed + 100), target_of(row, seed)

        def value(scores, cost=cost, target=target):
            weights = (scores + cost if with_cost else scores).flatten()
            lead = [(weights * (v - target.flatten())).sum() for v in known]
            return torch.stack(lead).mean() if form == "nce" else max(lead)

        options = {"form": form, "cost": cost} if with_cost else {"form": form}
        assert_true(lambda s, t=target, o=options: dl.contrastive(s, t, pool, **o), value, scores)
        _, y = dl.contrastive(scores, target, pool, form=form, return_structure=True)
        assert torch.equal(y.flatten(), known[(known @ scores.flatten()).argmax()])


@every_list
def test_the_contrast_with_all_structures_is_the_hinge(row):
    (scores,), cost = row.scores(7), row.cost(7)
    pool = dl.Pool(row.structure, solve_share=0.0)
    pool.add(row.every[0])
    best = row.structure.solve(-cost)
    for given, fear in ((None, 0.0), (cost, 1.0)):
        torch.testing.assert_close(
            gradients(lambda s, g=given: dl.contrastive(s, best, pool, cost=g, reduction="sum"), [scores]),
            gradients(lambda s, f=fear: dl.structured_hinge(s, cost, row.structure, fear=f, reduction="sum"), [scores]),
        )


@every_list
@pytest.mark.parametrize("form", ["pointwise", "pairwise", "difference", "listwise"])
def test_ranking_losses_are_their_formulas(row, form):
    pool, known = some_of(row)
    for seed in SEEDS:
        (scores,), cost = row.scores(seed=seed), row.cost(seed=seed + 100)

        def value(scores, cost=cost):
            p, t = known @ scores.flatten(), known @ cost.flatten()
            best = int(t.argmin())
            rest = [v for v in range(len(known)) if v != best]
            if form == "pointwise":
                return torch.stack([(-p[v] - t[v]) ** 2 for v in range(len(known))]).mean()
            if form == "pairwise":
                return torch.stack([torch.clamp(0.3 + (p[v] - p[best]), min=0) for v in rest]).mean()
            if form == "difference":
                return torch.stack([((-p[best] + p[v]) - (t[best] - t[v])) ** 2 for v in rest]).mean()
            wanted, ours = torch.exp(-t / 0.7), torch.exp(p / 0.7)
            return -torch.stack(
                [w / wanted.sum() * (o / ours.sum()).log() for w, o in zip(wanted, ours, strict=True)]
            ).sum()

        assert_true(lambda s, c=cost: dl.rank_pool(s, c, pool, form=form, margin=0.3, temperature=0.7), value, scores)
        perfect = dl.rank_pool(-cost, cost, pool, form=form, margin=0.0).item()
        assert perfect == pytest.approx(0) if form != "listwise" else perfect > 0


def test_solutions_that_cost_the_same_are_not_told_apart():
    pool = dl.Pool(dl.Choice(), solve_share=0.0)
    pool.add(torch.eye(3))
    scores, cost = torch.tensor([3.0, 0.0, -1.0]), torch.tensor([1.0, 1.0, 5.0])
    assert [dl.rank_pool(scores, cost, pool, form=form) for form in ("pairwise", "difference")] == [0, 0]


def test_a_pool_learns_from_a_loss_and_says_when_it_knows_nothing():
    pool, scores = dl.Pool(dl.Choice()), torch.eye(3)
    pool.eval()
    with pytest.raises(ValueError, match=r"knows no solutions.*pool\.add"):
        dl.rank_pool(scores, scores, pool)
    pool.train()
    dl.rank_pool(scores[:2], scores[:2], pool)
    assert torch.equal(pool.solutions, torch.eye(3)[:2].double())


@pytest.mark.parametrize("n", range(2, 7))
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_smooth_top_k_is_its_sum_over_subsets(n, temperature):
    from itertools import combinations

    for k in range(1, n + 1):
        for mask in (None, torch.arange(n) != n - 1):
            if mask is not None and k == n:
                continue
            allowed = [j for j in range(n) if mask is None or mask[j]]
            scores = torch.randn(n, generator=torch.Generator().manual_seed(10 * n + k), dtype=torch.float64)
            label = k % len(allowed)
            target = torch.nn.functional.one_hot(torch.tensor(label), n)

            def value(scores, k=k, allowed=allowed, label=label):
                every = list(combinations(allowed, k))
                means = [sum(scores[j] for j in subset) / k for subset in every]
                margins = [0.0 if label in subset else 0.8 for subset in every]
                above = sum(torch.exp((m + s) / temperature) for m, s in zip(margins, means, strict=True))
                with_label = sum(
                    torch.exp(s / temperature) for s, subset in zip(means, every, strict=True) if label in subset
                )
                return temperature * (above.log() - with_label.log())

            structure = dl.Subset(k, mask=mask)
            assert_true(
                lambda s, y=target, structure=structure: dl.smooth_top_k(
                    s, y, structure, temperature=temperature, margin=0.8
                ),
                value,
                scores,
            )


def test_smooth_top_k_is_the_cross_entropy_and_the_hinge_in_its_limits():
    scores = torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(50) % 8
    target = torch.nn.functional.one_hot(labels, 8)
    entropy = torch.nn.functional.cross_entropy(scores, labels)
    for structure in (dl.Choice(), dl.Subset(1)):
        torch.testing.assert_close(dl.smooth_top_k(scores, target, structure, margin=0.0), entropy)
    others = scores.masked_fill(target.bool(), -math.inf).sort(-1, descending=True).values
    for k in (1, 3):
        # The best k others at the margin, against the label with the best k - 1.
        hinge = (1 + (others[:, k - 1] - scores.gather(1, labels[:, None])[:, 0]) / k).clamp_min(0)
        soft = dl.smooth_top_k(scores, target, dl.Subset(k), temperature=1e-4, reduction="none")
        torch.testing.assert_close(soft, hinge, atol=1e-3, rtol=0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_smooth_top_k_is_stable_for_many_labels_and_large_scores(size):
    scores = size * torch.randn(4, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.nn.functional.one_hot(torch.arange(4), 1000)
    found = []
    for dtype in (torch.float32, torch.float64):
        value, (gradient,) = gradients(
            lambda s: dl.smooth_top_k(s, target, dl.Subset(5), temperature=0.1, reduction="sum"), [scores.to(dtype)]
        )
        assert torch.isfinite(value)
        torch.testing.assert_close(gradient.sum(-1), torch.zeros(4, dtype=dtype), atol=1e-5, rtol=0)
        found.append((value.double(), gradient.double()))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bad", [torch.zeros(4), torch.ones(4), torch.tensor([0.5, 0.5, 0, 0]), torch.eye(4)[3]])
def test_smooth_top_k_asks_for_one_label_that_is_allowed(bad):
    with pytest.raises(ValueError, match="one_hot makes"):
        dl.smooth_top_k(torch.zeros(4), bad, dl.Subset(2, mask=torch.tensor([True, True, True, False])))
    with pytest.raises(TypeError, match="one k for all instances"):
        dl.smooth_top_k(torch.zeros(2, 4), torch.eye(4)[:2], dl.Subset(torch.tensor([1, 2])))


def test_differences_find_a_wrong_gradient():
    """The judge itself: of the square, and of the square with the gradient of another."""
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(differences(lambda x: x.square().sum(), [x])[0], 2 * x)
    with pytest.raises(AssertionError):
        assert_true(lambda x: x.square().sum() + x.sum() - x.sum().detach(), lambda x: x.square().sum(), x)
