"""``soft_sort`` and ``soft_rank`` against the projections that define them, and SciPy's isotonic regression."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import isotonic_regression, minimize
from score_kinds import KINDS as SCORE_KINDS
from torch.autograd import gradcheck, gradgradcheck

import directloss as dl

NAN, INF = float("nan"), float("inf")
KINDS = ["quadratic", "entropic"]
every_kind = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("descending", [False, True])


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


VALUES = {
    "one": draw(1),
    "two": draw(2),
    "three": draw(3, seed=1),
    "five": draw(5, seed=2),
    "far apart": torch.tensor([4.0, -9.0, 20.0, 0.0], dtype=torch.float64),
    "ties": torch.tensor([1.0, 0.0, 1.0, 1.0, -2.0], dtype=torch.float64),
    "all equal": torch.full((4,), 0.3, dtype=torch.float64),
    "signed zeros": torch.tensor([0.0, -0.0, 1.0, -0.0], dtype=torch.float64),
}
every_value = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())


def hull(w):
    """All permutations of w, (n!, n)."""
    return torch.tensor(list(permutations(w.tolist())), dtype=torch.float64)


def posed(values, regularization, kind, descending, ranks):
    """What is projected, onto the permutations of what, and how to read the result: all in the exponentials' space."""
    n = len(values)
    rho = torch.arange(1.0, n + 1, dtype=torch.float64)
    if ranks:
        return (-values if descending else values) / regularization, hull(rho), lambda y: y
    places = (rho.flip(0) if descending else rho) / regularization
    return (
        places,
        hull(values if kind == "quadratic" else values.exp()),
        torch.log if kind == "entropic" else lambda y: y,
    )


def call(values, regularization, kind, descending, ranks):
    return (dl.soft_rank if ranks else dl.soft_sort)(values, regularization, kind, descending)


@every_value
@every_kind
@both_ways
@pytest.mark.parametrize("ranks", [True, False], ids=["rank", "sort"])
@pytest.mark.parametrize("regularization", [0.05, 1.0, 20.0])
def test_it_is_the_projection_onto_all_permutations(values, kind, descending, ranks, regularization):
    """y is the nearest point of a hull if and only if no vertex lies ahead of it, seen along the way to the goal.

    By a violation of d its squared distance to the nearest is at most d, or 2 d times the largest y for the entropic.
    """
    z, vertices, _ = posed(values, regularization, kind, descending, ranks)
    y = call(values, regularization, kind, descending, ranks)
    y = y.exp() if kind == "entropic" and not ranks else y
    slope = y - z if kind == "quadratic" else y.log() - z
    ahead = -((vertices - y) @ slope).min()
    size = 1 + slope.abs().max() * vertices.abs().max()
    assert ahead < 1e-13 * len(values) * size
    # It lies in the hull: its sums of the largest are no larger (Rado), and all sum to the same.
    ours, theirs = (x.sort(descending=True).values.cumsum(0) for x in (y, vertices[0]))
    assert (ours <= theirs + 1e-12 * size).all()
    torch.testing.assert_close(ours[-1], theirs[-1])


@every_kind
@pytest.mark.parametrize("ranks", [True, False], ids=["rank", "sort"])
@pytest.mark.parametrize("regularization", [0.5, 2.0])
def test_it_is_what_a_general_optimiser_finds(kind, ranks, regularization):
    values = draw(3, seed=4)
    z, vertices, read = posed(values, regularization, kind, False, ranks)

    def objective(weights):
        leaf = torch.tensor(weights, requires_grad=True)
        y = leaf @ vertices
        value = (y - z).square().sum() / 2 if kind == "quadratic" else (y * (y.log() - z) - y).sum()
        value.backward()
        return value.item(), leaf.grad.numpy()

    count = len(vertices)
    simplex = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(count)}
    options = {"ftol": 1e-15, "maxiter": 1000}
    start = np.full(count, 1 / count)
    bounds = [(0, 1)] * count
    found = minimize(objective, start, jac=True, bounds=bounds, constraints=simplex, method="SLSQP", options=options)
    theirs = read(torch.from_numpy(found.x) @ vertices)
    torch.testing.assert_close(call(values, regularization, kind, False, ranks), theirs, rtol=0, atol=2e-6)


def min_max(s, w, kind):
    """The isotonic regression by its formula over all intervals, v_i = min_{j <= i} max_{k >= i} value(j..k)."""
    n = len(s)

    def value(j, k):
        if kind == "quadratic":
            return (s[j : k + 1] - w[j : k + 1]).mean()
        return s[j : k + 1].logsumexp(0) - w[j : k + 1].logsumexp(0)

    v = [min(max(value(j, k) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    return s - torch.stack(v)


def by_formula(values, regularization, kind, descending, ranks):
    rho = torch.arange(len(values), 0.0, -1, dtype=torch.float64)
    if not ranks:
        y = min_max(rho / regularization, values.sort(descending=True).values, kind)
        return y if descending else y.flip(0)
    z = (-values if descending else values) / regularization
    order = z.argsort(descending=True)
    y = min_max(z[order], rho if kind == "quadratic" else rho.log(), kind)
    return torch.empty_like(y).scatter(0, order, y if kind == "quadratic" else y.exp())


@every_kind
@both_ways
@pytest.mark.parametrize("ranks", [True, False], ids=["rank", "sort"])
def test_gradients_are_finite_differences_of_the_formula(kind, descending, ranks):
    step = 1e-5
    for seed, regularization in ((0, 0.3), (1, 1.0), (2, 3.0)):
        values, towards = draw(6, seed=seed), draw(6, seed=9)
        leaf = values.clone().requires_grad_()
        call(leaf, regularization, kind, descending, ranks).backward(towards)
        at = [
            (by_formula(values + sign * step * e, regularization, kind, descending, ranks) * towards).sum()
            for e in torch.eye(6, dtype=torch.float64)
            for sign in (1, -1)
        ]
        slopes = torch.stack(at).reshape(6, 2).diff(dim=1).squeeze(1) / (-2 * step)
        torch.testing.assert_close(leaf.grad, slopes, rtol=1e-6, atol=1e-6)


@every_kind
@both_ways
@pytest.mark.parametrize("rule", [dl.soft_rank, dl.soft_sort])
def test_first_and_second_derivatives_pass_gradcheck(rule, kind, descending):
    values = draw(3, 6, seed=3).requires_grad_()
    assert gradcheck(lambda x: rule(x, 0.7, kind, descending), values, atol=1e-6, rtol=1e-6)
    assert gradgradcheck(lambda x: rule(x, 0.7, kind, descending), values)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda x: rule(x, 0.7, kind, descending)))(values.detach())
    rows = [
        torch.autograd.functional.jacobian(lambda x: rule(x, 0.7, kind, descending), one) for one in values.detach()
    ]
    torch.testing.assert_close(jacobian, torch.stack(rows))


@pytest.mark.parametrize("regularization", [1e-3, 3e-3, 1.0])
def test_many_values_are_those_of_scipys_isotonic_regression(regularization):
    values = draw(4, 1000, seed=5)
    ranks = dl.soft_rank(values, regularization)
    for row, ours in zip(values, ranks, strict=True):
        z = (row / regularization).numpy()
        order = np.argsort(-z)
        found = isotonic_regression(z[order] - np.arange(1000, 0, -1), increasing=False)
        torch.testing.assert_close(ours[order.copy()], torch.from_numpy(z[order] - found.x), rtol=0, atol=1e-8)


@every_kind
def test_without_regularisation_it_sorts_and_ranks_and_with_much_all_are_equal(kind):
    values = draw(20, 30)
    order = values.argsort(-1)
    hard = torch.empty_like(values).scatter(-1, order, torch.arange(1.0, 31, dtype=torch.float64).expand(20, 30))
    torch.testing.assert_close(dl.soft_rank(values, 1e-9, kind), hard, rtol=1e-12, atol=0)
    torch.testing.assert_close(dl.soft_rank(values, 1e-9, kind, descending=True), 31 - hard, rtol=1e-12, atol=0)
    assert torch.equal(dl.soft_sort(values, 1e-9, kind), values.sort(-1).values)
    assert torch.equal(dl.soft_sort(values, 1e-9, kind, descending=True), values.sort(-1, descending=True).values)
    torch.testing.assert_close(dl.soft_rank(values, 1e9, kind), torch.full_like(values, 15.5), rtol=0, atol=1e-6)
    level = values.mean(-1) if kind == "quadratic" else values.logsumexp(-1) - np.log(30)
    torch.testing.assert_close(
        dl.soft_sort(values, 1e9, kind), level.unsqueeze(-1).expand_as(values), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("name", sorted(set(SCORE_KINDS) - {"huge"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [1, 2, 17, 300])
def test_numbers_of_any_kind_are_sorted_exactly(name, dtype, n):
    values = torch.from_numpy(SCORE_KINDS[name](np.random.default_rng(n), (20, n))).to(dtype)
    for kind in KINDS:
        for descending in (False, True):
            assert torch.equal(
                dl.soft_sort(values, 1e-14, kind, descending), values.sort(-1, descending=descending).values
            )


def test_of_one_value_the_rank_is_one_and_the_gradient_nothing():
    value = torch.tensor([3.0], requires_grad=True)
    for kind in KINDS:
        assert dl.soft_rank(value, 1.0, kind).tolist() == [1.0]
        assert torch.autograd.grad(dl.soft_rank(value, 1.0, kind).sum(), value)[0].item() == 0
        assert dl.soft_sort(value, 1.0, kind).tolist() == [3.0]
        assert torch.autograd.grad(dl.soft_sort(value, 1.0, kind).sum(), value)[0].item() == 1


@every_kind
def test_ties_share_the_mean_of_their_ranks(kind):
    ranks = dl.soft_rank(torch.tensor([5.0, 1.0, 5.0, 9.0]), 0.01, kind)
    torch.testing.assert_close(ranks, torch.tensor([2.5, 1.0, 2.5, 4.0]))


@every_kind
@pytest.mark.parametrize("rule", [dl.soft_rank, dl.soft_sort])
def test_a_large_offset_costs_no_digits(rule, kind):
    values = draw(4, 50, dtype=torch.float32).mul(8).round() / 8  # which the offset does not round
    offset = 2.0**20
    shifted = rule(values + offset, 0.5, kind) - (offset if rule is dl.soft_sort else 0)
    torch.testing.assert_close(shifted, rule(values, 0.5, kind), rtol=0, atol=1e-4 if rule is dl.soft_rank else 0.13)
    exact = rule(values.double() + offset, 0.5, kind) - (offset if rule is dl.soft_sort else 0)
    torch.testing.assert_close(exact, rule(values.double(), 0.5, kind), rtol=0, atol=1e-8)


@every_kind
@pytest.mark.parametrize("rule", [dl.soft_rank, dl.soft_sort])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_narrow_dtypes_are_rounded_only_in_the_end(rule, kind, dtype):
    values = draw(3, 100, dtype=dtype)
    results = []
    for x in (values, values.double()):
        leaf = x.clone().requires_grad_()
        y = rule(leaf, 0.1, kind)
        y.backward(draw(3, 100, seed=9, dtype=dtype).to(x.dtype))
        results.append((y.detach(), leaf.grad))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == dtype
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance * 10)


@every_kind
@both_ways
@pytest.mark.parametrize("rule", [dl.soft_rank, dl.soft_sort])
def test_strides_and_threads_change_nothing(rule, kind, descending):
    values = draw(7, 40, 60).movedim(0, -1)  # 2,400 rows of 7 that are not contiguous
    assert not values.is_contiguous()
    whole = rule(values, 0.5, kind, descending)
    assert torch.equal(whole, rule(values.contiguous(), 0.5, kind, descending))
    threads = dl.get_num_threads()
    try:
        for count in (1, 3):
            dl.set_num_threads(count)
            assert torch.equal(rule(values, 0.5, kind, descending), whole)
    finally:
        dl.set_num_threads(None)
    assert dl.get_num_threads() == threads


@pytest.mark.parametrize("rule", [dl.soft_rank, dl.soft_sort])
@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        ([1.0], {}, TypeError, "got list, expected a torch.Tensor"),
        (torch.arange(3), {}, TypeError, "expected a floating-point dtype"),
        (torch.zeros(2, 0), {}, ValueError, "n = 0 entries"),
        (torch.tensor(1.0), {}, ValueError, "needs at least 1 axes"),
        (torch.tensor([0.0, NAN]), {}, ValueError, "values hold 1 NaN or infinite entries"),
        (torch.tensor([0.0, INF]), {}, ValueError, "values hold 1 NaN or infinite entries"),
        (torch.zeros(3), {"regularization": 0.0}, ValueError, "regularization is 0.0, expected a positive number"),
        (torch.zeros(3), {"regularization": NAN}, ValueError, "regularization is nan, expected a positive number"),
        (torch.zeros(3), {"regularization": 1e-39}, ValueError, "too large; scale the values down"),
        (torch.zeros(3), {"kind": "cubic"}, ValueError, "kind is 'cubic', expected 'quadratic' or 'entropic'"),
    ],
)
def test_bad_input_is_refused(rule, values, options, error, message):
    with pytest.raises(error, match=message):
        rule(values, **options)
