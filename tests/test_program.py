"""Programmes against enumeration and SciPy."""

import builtins
import copy
import pickle
import re
import threading

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, linprog, milp
from score_kinds import INSTANCES, KINDS, batches
from tables import PROGRAM, best_objective, direct_loss, index_in, objective
from torch.func import vmap

import directloss as dl
from directloss.structures import highs

BATCH = 5
FUZZED = max(100, INSTANCES // 100)  # a programme takes a thousand times as long as a tree
# Relative to the largest score: HiGHS does not tell apart what differs by less.
RESOLUTION = 1e-9


def random_constraints(rng, n, instances):
    """Whole numbers, for all instances or for each; often feasible."""
    batch = (instances,) if rng.random() < 0.5 else ()
    rows = int(rng.integers(0, 4))
    options = {"lower": int(rng.integers(-2, 1)), "upper": torch.from_numpy(rng.integers(1, 3, (*batch, n)))}
    if rows:
        options["A_ub"] = torch.from_numpy(rng.integers(-5, 10, (*batch, rows, n)))
        options["b_ub"] = torch.from_numpy(rng.integers(-3, 4 * n, (*batch, rows)))
    if rng.random() < 0.4:
        options["A_eq"] = torch.from_numpy(rng.integers(0, 2, (1, n)))
        options["b_eq"] = torch.from_numpy(rng.integers(0, 3, (*batch, 1)))
    return options


def of_instance(options, index):
    """The constraints of one instance."""
    own = {"A_ub": 2, "b_ub": 1, "A_eq": 2, "b_eq": 1, "upper": 1}
    return {name: value[index] if name in own and value.dim() > own[name] else value for name, value in options.items()}


def test_integer_programmes_are_the_best_of_all_solutions_and_infeasible_ones_are_named():
    solved = refused = 0
    for rng, kind in batches(BATCH, FUZZED):
        n = int(rng.integers(1, 6))
        options = random_constraints(rng, n, BATCH)
        scores = torch.from_numpy(KINDS[kind](rng, (BATCH, n)))
        each = [dl.Program(**of_instance(options, index)).enumerate(scores[0]) for index in range(BATCH)]
        empty = [index for index, every in enumerate(each) if not len(every)]
        if empty:
            with pytest.raises(ValueError, match=rf"instance \({empty[0]},\) has no solution"):
                dl.Program(**options).solve(scores)
            refused += 1
            continue
        cost = torch.from_numpy(KINDS["ties"](rng, (BATCH, n)))
        along = dl.Program(**options).solve_along(scores, cost, (0.0, -1.0))
        for step, ys in zip((0.0, -1.0), along, strict=True):
            for theta, y, every in zip(scores + step * cost, ys, each, strict=True):
                index_in(y, every)
                short = best_objective(theta, every) - objective(theta, y, 1)
                assert short <= RESOLUTION * theta.abs().max()
                solved += 1
    assert solved >= FUZZED
    assert refused


def test_larger_programmes_are_as_good_as_scipys(generator):
    n, m = 16, 3
    rows = torch.randint(1, 20, (6, m, n), generator=generator).double()
    sides = rows.sum(-1) // 3
    scores = torch.rand(6, n, generator=generator, dtype=torch.float64)
    mixed = torch.arange(n) % 3 != 0
    for integer in (True, False, mixed):
        y = dl.Program(A_ub=rows, b_ub=sides, upper=2, integer=integer).solve(scores)
        wanted = np.broadcast_to(np.asarray(integer), n).astype(int)
        for one, matrix, side, own in zip(y, rows, sides, scores, strict=True):
            found = milp(
                -own.numpy(), integrality=wanted, bounds=(0, 2), constraints=LinearConstraint(matrix, -np.inf, side),
                options={"mip_rel_gap": 0},
            )  # fmt: skip
            assert own @ one == pytest.approx(-found.fun, rel=1e-9)
            assert (matrix @ one <= side + 1e-6).all()
            assert torch.equal(one[wanted == 1], one[wanted == 1].round())


@pytest.mark.parametrize("seed", range(10))
def test_linear_programmes_are_as_good_as_scipys_along_all_steps(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    rows, equal = rng.standard_normal((3, n)), rng.random((1, n))
    inside = rng.random(n)
    sides, total = rows @ inside + rng.random(3), equal @ inside
    scores, cost = torch.from_numpy(rng.standard_normal((5, n))), torch.from_numpy(rng.standard_normal(n))
    structure = dl.Program(*map(torch.from_numpy, (rows, sides, equal, total)), lower=-1, upper=2, integer=False)
    steps = (0.0, 0.5, -2.0)
    for step, ys in zip(steps, structure.solve_along(scores, cost, steps), strict=True):
        for theta, y in zip(scores + step * cost, ys, strict=True):
            found = linprog(-theta.numpy(), rows, sides, equal, total, bounds=(-1, 2))
            assert theta @ y == pytest.approx(-found.fun, abs=1e-9)
            assert (rows @ y.numpy() <= sides + 1e-8).all()
            assert equal @ y.numpy() == pytest.approx(total, abs=1e-8)


def test_a_solution_that_is_better_by_less_than_highs_can_tell_is_taken_from_another_step():
    scores, cost = torch.tensor([1e-30, 0.0, 0.0], dtype=torch.float64), torch.tensor([0.0, 1.0, 0.0])
    y = dl.Program(A_ub=torch.tensor([[1, 0, 1]]), b_ub=torch.tensor([1])).solve_along(scores, cost, (0.0, -1.0))
    assert y[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("integer", [True, False])
def test_ties_do_not_depend_on_the_batch_or_on_what_was_solved_before(integer, generator):
    structure = dl.Program(A_ub=torch.ones(1, 5), b_ub=torch.tensor([2.0]), integer=integer)
    scores = torch.randint(3, (60, 5), generator=generator).double()
    y = structure.solve(scores)
    assert torch.equal(y.flip(0), structure.solve(scores.flip(0)))
    assert torch.equal(y, torch.stack([structure.solve(one) for one in scores]))
    highs._forget_models()
    assert torch.equal(y, structure.solve(scores))


def test_only_what_changed_is_sent(monkeypatch, generator):
    calls = []
    for name in ("_pass", "restart"):
        method = getattr(highs.Model, name)
        monkeypatch.setattr(
            highs.Model, name, lambda self, *given, n=name, m=method: calls.append(n) or m(self, *given)
        )
    highs._forget_models()
    scores = torch.rand(4, 3, generator=generator)
    rows = torch.tensor([[1.0, 2.0, 3.0]])
    for sides in (torch.tensor([3.0]), torch.tensor([[3.0], [2.0], [1.0], [4.0]])):
        for upper in (1, torch.tensor([1, 2, 1])):
            y = dl.Program(A_ub=rows, b_ub=sides, upper=upper).solve(scores)
            assert (y @ rows[0] <= sides.flatten() + 1e-9).all()
    assert calls.count("_pass") == 1, "right-hand sides and bounds need no new model"
    dl.Program(A_ub=rows + 1, b_ub=torch.tensor([3.0])).solve(scores)
    assert calls.count("_pass") == 2


def test_a_whole_relaxation_needs_no_branching(monkeypatch, generator):
    runs = []
    run = highs.Model._run
    monkeypatch.setattr(highs.Model, "_run", lambda self, relaxed: runs.append(relaxed) or run(self, relaxed))
    dl.Program(A_ub=torch.ones(1, 5), b_ub=torch.tensor([2.0])).solve(torch.rand(10, 5, generator=generator))
    assert runs == [True] * 10


def test_two_workers_give_what_one_process_gives(generator):
    scores, cost = torch.rand(2, 10, 6, generator=generator), torch.rand(10, 6, generator=generator)
    options = {
        "A_ub": torch.randint(1, 9, (10, 2, 6), generator=generator),
        "b_ub": torch.randint(5, 20, (2, 10, 2), generator=generator),
    }
    alone = dl.Program(**options).solve_along(scores, cost, (0.0, -1.0))
    structure = dl.Program(**options, workers=2)
    assert torch.equal(structure.solve_along(scores, cost, (0.0, -1.0)), alone)
    assert torch.equal(pickle.loads(pickle.dumps(structure)).solve(scores), alone[0])
    options["b_ub"] = options["b_ub"].clone()
    options["b_ub"][1, 3] = -1
    with pytest.raises(ValueError, match=r"instance \(1, 3\) has no solution"):
        dl.Program(**options, workers=2).solve(scores)


def test_copies_pickles_and_threads_share_no_model(generator):
    scores = torch.rand(20, 3, generator=generator)
    y = PROGRAM.solve(scores)
    for same in (copy.copy(PROGRAM), copy.deepcopy(PROGRAM), pickle.loads(pickle.dumps(PROGRAM))):
        assert torch.equal(same.solve(scores), y)
    found = {}
    runs = [threading.Thread(target=lambda i=i: found.update({i: PROGRAM.solve(scores)})) for i in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert all(torch.equal(found[i], y) for i in range(4))


def test_direct_loss_through_a_linear_programme_is_its_definition(generator):
    structure = dl.Program(A_ub=torch.tensor([[2.0, 3.0, 1.0]]), b_ub=torch.tensor([4.0]), integer=False)
    scores = torch.randn(8, 3, generator=generator, dtype=torch.float64).requires_grad_()
    cost = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    direct_loss(scores, cost, structure, epsilon=-1.5).sum().backward()
    theta = scores.detach()
    expected = (structure.solve(theta - 1.5 * cost) - structure.solve(theta)) / -1.5
    torch.testing.assert_close(scores.grad, expected)
    assert (expected != expected.round()).any(), "some solutions are fractions"


def test_vmap_over_right_hand_sides_equals_the_batched_call(generator):
    scores = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    rows, sides, cost = torch.tensor([[3.0, 2.0, 4.0, 1.0]]), torch.tensor([[0.0], [5.0], [9.0]]), torch.ones(4)

    def loss(scores, sides):
        return direct_loss(scores, cost, dl.Program(A_ub=rows, b_ub=sides), epsilon=-1.0)

    torch.testing.assert_close(vmap(loss)(scores, sides), loss(scores, sides))


def test_programmes_without_constraints_are_boxes():
    scores = torch.tensor([[1.0, -2.0, 3.0]])
    assert dl.Program(lower=-1, upper=torch.tensor([2, 3, 4])).solve(scores).tolist() == [[2, -1, 4]]
    assert dl.Program(integer=False, upper=0.5).solve(scores).tolist() == [[0.5, 0, 0.5]]
    assert dl.Program().count(scores[0]) == 8


def test_bounds_may_be_infinite():
    y = dl.Program(torch.ones(1, 2), torch.tensor([7.5]), lower=0, upper=torch.inf).solve(torch.tensor([1.0, 2.0]))
    assert y.tolist() == [0, 7]


def test_counts_and_what_cannot_be_enumerated():
    structure = dl.Program(torch.ones(1, 4), torch.tensor([1.0]))
    assert structure.count(torch.zeros(4)) == len(structure.enumerate(torch.zeros(4))) == 5
    with pytest.raises(ValueError, match="continuous variables"):
        dl.Program(integer=torch.tensor([True, False])).enumerate(torch.zeros(2))
    with pytest.raises(ValueError, match="without finite bounds"):
        dl.Program(upper=torch.inf).enumerate(torch.zeros(2))
    with pytest.raises(ValueError, match="about 10\\^30 structures"):
        dl.Program().enumerate(torch.zeros(100))


A, B = torch.ones(1, 3), torch.ones(1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dl.Program(A_ub=A), ValueError, "A_ub and b_ub go together, but b_ub is missing"),
        (lambda: dl.Program(b_eq=B), ValueError, "A_eq and b_eq go together, but A_eq is missing"),
        (lambda: dl.Program(A, torch.ones(2)), ValueError, "A_ub has 1 rows, but b_ub has 2"),
        (lambda: dl.Program("x", B), TypeError, "A_ub is str, expected numbers"),
        (lambda: dl.Program(A * torch.nan, B), ValueError, "A_ub has NaN or infinite numbers"),
        (lambda: dl.Program(A, B * torch.nan), ValueError, "b_ub has NaN"),
        (lambda: dl.Program(lower=torch.nan), ValueError, "lower has NaN"),
        (
            lambda: dl.Program(lower=torch.tensor([[0, 0], [0, 2]])),
            ValueError,
            r"lower is 2 and upper 1 for variable 1 of instance \(1,\)",
        ),
        (lambda: dl.Program(integer=1), TypeError, "integer is 1, expected True, False or a boolean mask"),
        (lambda: dl.Program(workers=-1), ValueError, "workers is -1"),
        (lambda: dl.Program(A, B).solve(torch.zeros(2)), ValueError, "2 entries, but A_ub has 3 columns"),
        (lambda: dl.Program(upper=torch.ones(3)).solve(torch.zeros(2)), ValueError, "2 entries, but upper has 3"),
        (
            lambda: dl.Program(integer=torch.tensor([True])).solve(torch.zeros(2)),
            ValueError,
            "2 entries, but integer is a mask of 1",
        ),
        (
            lambda: dl.Program(A.expand(2, 1, 3), B).solve(torch.zeros(3, 3)),
            ValueError,
            r"A_ub has batch axes \(2,\), which do not broadcast to the scores' \(3,\)",
        ),
        (
            lambda: dl.Program(A, torch.tensor([[1.0], [-1.0]])).solve(torch.zeros(4, 2, 3)),
            ValueError,
            r"instance \(0, 1\) has no solution",
        ),
        (
            lambda: dl.Program(A, torch.tensor([-1.0]), integer=False).solve(torch.ones(3)),
            ValueError,
            r"instance \(\) has no solution",
        ),
        *[
            (
                lambda integer=integer: dl.Program(-A, B, upper=torch.inf, integer=integer).solve(
                    torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
                ),
                ValueError,
                r"instance \(1,\) is unbounded",
            )
            for integer in (True, False)
        ],
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_an_integer_programme_whose_relaxation_alone_is_feasible_has_no_solution():
    with pytest.raises(ValueError, match=r"instance \(\) has no solution"):
        dl.Program(A_eq=torch.tensor([[2.0, 2.0]]), b_eq=torch.tensor([1.0])).solve(torch.zeros(2))


def test_without_highspy_the_error_names_the_extra(monkeypatch):
    plain = builtins.__import__

    def without(name, *rest):
        if name == "highspy":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=re.escape("pip install 'directloss[highs]'")):
        dl.Program()
