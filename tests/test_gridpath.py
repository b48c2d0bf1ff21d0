"""Paths over grids: against enumeration, and against SciPy's Dijkstra and Bellman-Ford.

``DIRECTLOSS_FUZZ_INSTANCES`` says how many instances are compared (``make fuzz``: 200,000).
"""

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from scipy.ndimage import label
from scipy.sparse import csr_array
from scipy.sparse.csgraph import bellman_ford, dijkstra
from tables import best_objective, index_in, objective

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "2000"))
BATCH = 50
KINDS = {
    "random": lambda rng, shape: rng.random(shape),
    "ties": lambda rng, shape: rng.integers(1, 4, shape).astype(float),
    "zeros and ones": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(0, 3))),
    "tiny": lambda rng, shape: 1e-30 * rng.random(shape),
    "mixed magnitudes": lambda rng, shape: rng.random(shape) * 10.0 ** rng.integers(-12, 13, shape),
    "maze": lambda rng, shape: np.where(rng.random(shape) < 0.4, 1000.0, rng.random(shape)),
}
MOVES = ["monotone", 4, 8]


def edges_of(rows, columns, moves):
    """(from, to) of every move between cells."""
    steps = [(0, 1), (1, 0)]
    if moves != "monotone":
        steps += [(0, -1), (-1, 0)]
    if moves == 8:
        steps += [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    return np.array(
        [
            (i * columns + j, (i + down) * columns + j + right)
            for i in range(rows)
            for j in range(columns)
            for down, right in steps
            if 0 <= i + down < rows and 0 <= j + right < columns
        ],
        int,
    ).reshape(-1, 2)


def shortest(costs, moves):
    """SciPy's smallest cost of a path over cells (r, c)."""
    rows, columns = costs.shape
    tails, heads = edges_of(rows, columns, moves).T
    graph = csr_array((costs.ravel()[heads], (np.int32(tails), np.int32(heads))), shape=(costs.size, costs.size))
    solver = bellman_ford if moves == "monotone" else dijkstra
    return costs.flat[0] + solver(graph, indices=0)[-1]


def test_paths_over_cells_are_as_good_as_scipys():
    rng = np.random.default_rng(0)
    for example in range(-(-INSTANCES // BATCH)):
        moves, kind = MOVES[example % 3], list(KINDS)[example // 3 % len(KINDS)]
        size = 4 if example % 2 else 9
        rows, columns = rng.integers(1, size, 2)
        costs = KINDS[kind](rng, (BATCH, rows, columns))
        if moves == "monotone" and example % 4 == 0:
            costs -= costs.mean()
        scores = -torch.from_numpy(costs)
        dl.set_num_threads(1 + example % 2)
        y = dl.GridPath(moves).solve(scores)
        best = np.array([shortest(one, moves) for one in costs])
        reached = -objective(scores, y, 2).numpy()
        assert (np.abs(reached - best) <= 1e-14 * rows * columns * np.abs(costs).max((1, 2))).all(), (moves, kind)
        assert y[:, 0, 0].all()
        assert y[:, -1, -1].all()
        around = np.ones((3, 3)) if moves == 8 else None
        assert all(label(one, around)[1] == 1 for one in y.numpy()), "the cells do not hang together"
        if rows * columns <= 12:
            index_in(y, dl.GridPath(moves).enumerate(scores[0]))


@pytest.mark.parametrize("moves", [4, 8])
@pytest.mark.parametrize("entries", [(1, 1), (1, 4), (4, 1), (3, 3), (3, 4)])
def test_paths_that_may_return_are_the_best_of_all_simple_paths(moves, entries, generator):
    scores = -torch.rand(100, *entries, generator=generator, dtype=torch.float64)
    y = dl.GridPath(moves).solve(scores)
    every = dl.GridPath(moves).enumerate(scores[0])
    index_in(y, every)
    torch.testing.assert_close(objective(scores, y, 2), best_objective(scores, every), rtol=1e-14, atol=1e-14)


def winding(rows, columns):
    """The only cheap path fills a spiral; every wall between is dear."""
    free = np.zeros((rows, columns), bool)
    i = j = 0
    down, right = 0, 1
    free[0, 0] = True
    while True:
        for _ in range(2):
            beyond = (i + 2 * down, j + 2 * right)
            inside = 0 <= i + down < rows and 0 <= j + right < columns
            open_beyond = not (0 <= beyond[0] < rows and 0 <= beyond[1] < columns) or not free[beyond]
            if inside and open_beyond and not free[i + down, j + right]:
                break
            down, right = right, -down
        else:
            return free
        i, j = i + down, j + right
        free[i, j] = True


@pytest.mark.parametrize("moves", [4, 8])
@pytest.mark.parametrize("turned", [False, True])
def test_a_path_that_turns_often_is_found(moves, turned):
    costs = np.where(winding(31, 31), 1.0, 1e6)
    costs = costs.T.copy() if turned else costs
    for view in (costs, costs[::-1, ::-1].copy(), costs[::-1].copy()):
        y = dl.GridPath(moves).solve(-torch.from_numpy(view))
        assert (y.numpy() * view).sum() == shortest(view, moves)


def test_tied_paths_visit_the_fewest_cells_and_prefer_the_right_seen_from_the_end():
    zeros = torch.zeros(3, 4)
    assert dl.GridPath(4).solve(zeros).sum() == 6
    assert dl.GridPath(8).solve(zeros).sum() == 4
    assert dl.GridPath().solve(zeros).tolist() == [[1, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1]]


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("values", [1, 2])
def test_neither_batch_nor_steps_nor_threads_decide_a_tie(moves, values, generator):
    scores = -torch.randint(values, (3, 333, 5, 6), generator=generator).double()
    alone = torch.stack([dl.GridPath(moves).solve(one) for one in scores.flatten(0, 1)]).reshape(scores.shape)
    for count in (1, 2):
        dl.set_num_threads(count)
        assert torch.equal(dl.GridPath(moves).solve(scores), alone)
        along = dl.GridPath(moves).solve_along(scores, scores, (0.0, 1.0, 0.0))
        assert torch.equal(along[0], alone)
        assert torch.equal(along[2], alone)


@pytest.mark.parametrize(
    ("moves", "entries", "count"),
    [
        ("monotone", (3, 3), 6),
        ("monotone", (1, 5), 1),
        ("monotone", (5, 5), 70),
        (4, (1, 5), 1),
        (8, (2, 2), 4),
        (8, (1, 1), 1),
    ],
)
def test_counts_are_known(moves, entries, count):
    structure = dl.GridPath(moves)
    assert structure.count(torch.zeros(entries)) == len(structure.enumerate(torch.zeros(entries))) == count


@pytest.mark.parametrize(("moves", "size", "paths"), [(4, 2, 2), (4, 3, 12), (4, 4, 184), (8, 2, 5), (8, 3, 235)])
def test_paths_with_the_same_cells_are_one_structure(moves, size, paths):
    """Simple paths from corner to corner on n x n (OEIS A007764 and A140518), walked one by one."""
    beside = {cell: [] for cell in range(size * size)}
    for tail, head in edges_of(size, size, moves):
        beside[int(tail)].append(int(head))
    found, unfinished = [], [(0,)]
    while unfinished:
        path = unfinished.pop()
        if path[-1] == size * size - 1:
            found.append(frozenset(path))
        else:
            unfinished += [(*path, cell) for cell in beside[path[-1]] if cell not in path]
    assert len(found) == paths
    every = dl.GridPath(moves).enumerate(torch.zeros(size, size)).flatten(1)
    assert {frozenset(one.nonzero().flatten().tolist()) for one in every} == set(found)
    assert dl.GridPath(moves).count(torch.zeros(size, size)) == len(every) == len(set(found))


def test_a_grid_with_too_many_paths_is_refused_at_once():
    with pytest.raises(ValueError, match="more than the 1,000,000 that are enumerated"):
        dl.GridPath().enumerate(torch.zeros(30, 30))
    with pytest.raises(ValueError, match="at most 57 cells, but the grid has 8 x 8"):
        dl.GridPath(8).count(torch.zeros(8, 8))
    with pytest.raises(ValueError, match="too many paths with 8 neighbours"):
        dl.GridPath(8).enumerate(torch.zeros(7, 7))


def test_edges_come_in_pyepos_order():
    """Of a grid of 3 x 2: right 0-1, down 0-2, 1-3, right 2-3, down 2-4, 3-5, right 4-5."""
    structure = dl.GridPath(shape=(3, 2))
    y = structure.solve(torch.tensor([0.0, 1, 0, 0, 1, 0, 1]))
    assert y.tolist() == [0, 1, 0, 0, 1, 0, 1]
    assert sorted(structure.enumerate(torch.zeros(7)).tolist()) == [
        [0, 1, 0, 0, 1, 0, 1],
        [0, 1, 0, 1, 0, 1, 0],
        [1, 0, 1, 0, 0, 1, 0],
    ]


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 1), (3, 3), (2, 5)])
def test_paths_over_edges_are_the_best_of_all(shape, generator):
    structure = dl.GridPath(shape=shape)
    edges = len(edges_of(*shape, "monotone"))
    scores = torch.randn(200, edges, generator=generator, dtype=torch.float64)
    y = structure.solve(scores)
    assert y.shape == scores.shape
    every = structure.enumerate(scores[0])
    assert len(every) == structure.count(scores[0])
    torch.testing.assert_close(objective(scores, y, 1), best_objective(scores, every), rtol=1e-14, atol=1e-14)
    assert (y.sum(-1) == sum(shape) - 2).all()


@pytest.mark.parametrize("moves", MOVES)
def test_costs_broadcast(moves, generator):
    scores = -5 - torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    structure = dl.GridPath(moves)
    for cost in (torch.rand(5), torch.rand(4, 1), torch.rand(3, 1, 5), torch.rand(())):
        along = structure.solve_along(scores, cost, (0.0, -1.0, 2.0))
        for step, y in zip((0.0, -1.0, 2.0), along, strict=True):
            assert torch.equal(y, structure.solve(scores + step * cost.double()))


@pytest.mark.parametrize("moves", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_gradient_of_a_path_that_may_return_is_the_definition(moves, dtype, generator):
    structure = dl.GridPath(moves)
    scores = (-2 - torch.rand(6, 4, 4, generator=generator)).to(dtype).requires_grad_()
    cost = torch.rand(6, 4, 4, generator=generator).to(dtype)
    for epsilon in (-2.0, 1.0):
        scores.grad = None
        loss, y = dl.direct_loss(scores, cost, structure, epsilon=epsilon, reduction="none", return_structure=True)
        assert torch.equal(y[0], structure.solve(scores))
        loss.sum().backward()
        ahead = structure.solve(scores.detach().float() + epsilon * cost.float())
        torch.testing.assert_close(scores.grad.float(), (ahead - y[0].float()) / epsilon)


def test_multiplicative_noise_trains_paths_that_may_return(generator):
    costs = torch.zeros(4, 4, requires_grad=True)  # their logarithms
    target = torch.zeros(4, 4)
    target[[0, 1, 2, 3, 3, 3], [0, 0, 0, 1, 2, 3]] = 1
    optimiser = torch.optim.Adam([costs], 0.05)
    for _ in range(100):
        scores = dl.perturb(-costs.exp(), 0.2, dl.Normal(), 8, multiplicative=True, generator=generator)
        loss = dl.direct_loss(scores, 1 - target, dl.GridPath(8), epsilon=-1.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert torch.equal(dl.GridPath(8).solve(-costs.detach().exp()), target)


def test_positive_scores_name_the_instance_and_the_cure():
    scores = -torch.ones(2, 20, 3, 3)
    scores[1, 15, 2, 0] = 0.5
    with pytest.raises(ValueError, match=r"instance \(1, 15\) have positive entries.*multiplicative=True.*subtract"):
        dl.GridPath(8).solve(scores)
    with pytest.raises(ValueError, match=r"scores \+ -3 \* cost of instance \(0, 0\) .* smaller epsilon"):
        dl.GridPath(4).solve_along(-torch.ones(2, 20, 3, 3), -torch.ones(3, 3), (0.0, -3.0))
    with pytest.raises(ValueError, match=r"GridPath\(8\) takes no positive scores, which additive noise makes"):
        dl.direct_loss(-torch.ones(3, 3), torch.ones(3, 3), dl.GridPath(8), epsilon=1.0, scale=1.0)
    assert dl.GridPath(4).nonpositive
    assert not dl.GridPath().nonpositive


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="moves is 6, expected 'monotone'"):
        dl.GridPath(6)
    with pytest.raises(
        ValueError, match=r"moves is 8 and shape is \(3, 3\): edges are scored with monotone moves only"
    ):
        dl.GridPath(8, shape=(3, 3))
    for shape in ((3,), 3, "ab", (2.5, 1)):
        with pytest.raises(TypeError, match=r"expected \(r, c\), two whole numbers"):
            dl.GridPath(shape=shape)
    with pytest.raises(ValueError, match="expected r, c >= 1"):
        dl.GridPath(shape=(0, 3))
    with pytest.raises(ValueError, match="scores have 11 entries, but a grid of 3 x 3 cells has 12 edges"):
        dl.GridPath(shape=(3, 3)).solve(torch.zeros(2, 11))
    with pytest.raises(ValueError, match=r"expected \(r, c\) with r, c >= 1"):
        dl.GridPath().solve(torch.zeros(2, 0, 3))


@pytest.mark.parametrize("structure", [dl.GridPath(8), dl.GridPath(shape=(3, 3))], ids=repr)
def test_copies_solve_alike(structure):
    scores = -torch.rand(5, *((3, 3) if structure.entry_dims == 2 else (12,)))
    for other in (copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))):
        assert torch.equal(other.solve(scores), structure.solve(scores))


@pytest.mark.parametrize("moves", [4, 8])
@pytest.mark.parametrize("batch", [(0,), (2, 0), (), (1,)])
def test_empty_batches_and_batches_of_one(moves, batch):
    scores = -torch.rand(*batch, 3, 4)
    assert dl.GridPath(moves).solve(scores).shape == scores.shape
