"""Spanning trees against enumeration, SciPy and networkx."""

import copy
import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from score_kinds import KINDS, WHOLE, batches
from tables import GRAPH, best_objective, direct_loss, index_in, objective

import directloss as dl

BATCH = 50


def complete(n):
    return torch.triu_indices(n, n, offset=1).mT


def connected_graph(rng, nodes, extra):
    """A random tree in random order, and further edges, which may be loops and doubles."""
    tree = [(node, int(rng.integers(node))) for node in range(1, nodes)]
    edges = np.array(tree + [tuple(pair) for pair in rng.integers(0, nodes, (extra, 2))], np.int64).reshape(-1, 2)
    return torch.from_numpy(rng.permutation(edges))


def best_by_scipy(theta, edges):
    """SciPy's best objective. It minimises, an entry of 0 is not an edge, and of double edges it takes one weight."""
    nodes = int(edges.max()) + 1
    best = np.full((nodes, nodes), -np.inf)
    for weight, (a, b) in zip(theta, np.sort(edges, 1), strict=True):
        if a != b:
            best[a, b] = max(best[a, b], weight)
    # Only the order of the weights matters: their ranks are positive and small.
    values = np.unique(theta)
    ranks = np.where(np.isfinite(best), len(values) - np.searchsorted(values, best), 0)
    tree = minimum_spanning_tree(ranks.astype(float)).toarray() > 0
    return best[tree].sum()


def assert_tree(y, edges):
    chosen = edges[y.numpy().astype(bool)]
    nodes = int(edges.max()) + 1
    assert len(chosen) == nodes - 1
    adjacency = np.zeros((nodes, nodes))
    adjacency[chosen[:, 0], chosen[:, 1]] = 1
    assert connected_components(adjacency, directed=False)[0] == 1


def test_trees_are_as_good_as_scipys():
    for rng, kind in batches(BATCH):
        nodes = int(rng.choice([2, 3, 4, 6, 9, 14]))
        edges = None if rng.random() < 0.5 else connected_graph(rng, nodes, int(rng.integers(0, 2 * nodes)))
        graph = complete(nodes) if edges is None else edges
        dtype = torch.float32 if rng.random() < 0.3 else torch.float64
        scores = torch.from_numpy(KINDS[kind](rng, (BATCH, len(graph)))).to(dtype)
        cost = torch.from_numpy(KINDS["ties"](rng, (int(rng.choice([1, BATCH])), len(graph)))).to(dtype)
        dl.set_num_threads(int(rng.integers(1, 3)))
        for step, y in zip((0.0, -1.0), dl.SpanningTree(edges).solve_along(scores, cost, (0.0, -1.0)), strict=True):
            theta = (scores.double() + step * cost.double()).numpy()
            rounding = 0.0 if kind in WHOLE else nodes * np.abs(theta).max(1) * 1e-15
            best = [best_by_scipy(one, graph.numpy()) for one in theta]
            assert (np.abs((theta * y.double().numpy()).sum(1) - best) <= rounding).all()
            assert_tree(y[0], graph.numpy())


def test_a_list_of_all_edges_gives_the_trees_of_the_complete_graph_ties_included():
    for nodes in (2, 3, 5, 8, 30):
        for values in (1, 2, 5, 1000):
            generator = torch.Generator().manual_seed(values)
            scores = torch.randint(values, (50, nodes * (nodes - 1) // 2), generator=generator).double()
            assert torch.equal(dl.SpanningTree().solve(scores), dl.SpanningTree(complete(nodes)).solve(scores))


def test_of_equal_trees_the_one_whose_edges_come_first_is_taken():
    assert dl.SpanningTree().solve(torch.zeros(6)).tolist() == [1, 1, 1, 0, 0, 0]
    assert dl.SpanningTree(GRAPH).solve(torch.zeros(6)).tolist() == [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("nodes", range(1, 7))
def test_complete_graphs_have_as_many_trees_as_cayley_says(nodes):
    scores = torch.zeros(nodes * (nodes - 1) // 2)
    every = dl.SpanningTree().enumerate(scores)
    assert len(every) == dl.SpanningTree().count(scores) == nodes ** max(0, nodes - 2)
    assert len(set(map(tuple, every.tolist()))) == len(every)


@pytest.mark.parametrize("seed", range(20))
def test_graphs_have_as_many_trees_as_networkx_counts_and_the_best_is_found(seed):
    rng = np.random.default_rng(seed)
    edges = connected_graph(rng, int(rng.integers(2, 7)), int(rng.integers(0, 6)))
    graph = nx.MultiGraph([tuple(edge) for edge in edges.tolist() if edge[0] != edge[1]])
    structure, scores = dl.SpanningTree(edges), torch.from_numpy(rng.standard_normal((100, len(edges))))
    every = structure.enumerate(scores[0])
    assert len(every) == structure.count(scores[0]) == round(nx.number_of_spanning_trees(graph))
    y = structure.solve(scores)
    index_in(y, every)
    torch.testing.assert_close(objective(scores, y, 1), best_objective(scores, every))


def test_counts_are_exact_beyond_floating_point():
    assert dl.SpanningTree(complete(40)).count(torch.zeros(780)) == 40**38


def test_graphs_may_differ_between_instances_and_in_their_number_of_nodes(generator):
    triangle, tail = [[0, 1], [1, 2], [0, 2]], [[0, 1], [1, 2], [2, 3]]
    edges = torch.tensor([triangle, tail])
    scores = torch.randn(5, 2, 3, generator=generator)
    structure = dl.SpanningTree(edges)
    y = structure.solve(scores)
    assert torch.equal(y[:, 1], torch.ones(5, 3))
    assert torch.equal(y[:, 0], dl.SpanningTree(edges[0]).solve(scores[:, 0]))
    cost = torch.randn(2, 3, generator=generator)
    leaf = scores[0].clone().requires_grad_()
    direct_loss(leaf, cost, structure, epsilon=-3.0, scale=1.0, samples=20, generator=generator).sum().backward()
    assert leaf.grad[0].any()
    assert not leaf.grad[1].any(), "the only tree of an instance gets no gradient"


def test_a_graph_of_one_node_has_the_empty_tree():
    assert dl.SpanningTree().solve(torch.zeros(3, 0)).shape == (3, 0)
    assert dl.SpanningTree(torch.empty(0, 2, dtype=torch.int64)).enumerate(torch.zeros(0)).shape == (1, 0)


@pytest.mark.parametrize("structure", [dl.SpanningTree(), dl.SpanningTree(GRAPH)])
def test_trees_do_not_depend_on_threads_and_copies(structure, generator):
    scores = torch.randint(3, (20_000, 6), generator=generator).double()
    y = structure.solve(scores)
    dl.set_num_threads(2)
    for same in (structure, copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))):
        assert torch.equal(same.solve(scores), y)


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        ([[0, 1], [1, 2]], TypeError, "edges are list, expected a tensor of whole numbers"),
        (torch.tensor([[0.0, 1.0]]), TypeError, "edges are torch.float32"),
        (torch.tensor([0, 1]), ValueError, r"edges have shape \(2,\), expected \(E, 2\)"),
        (torch.tensor([[0, 1, 2]]), ValueError, r"edges have shape \(1, 3\), expected \(E, 2\)"),
        (torch.tensor([[0, -1]]), ValueError, "edges have a node -1"),
        (torch.tensor([[0, 1], [2, 3]]), ValueError, r"graph of instance \(\) is not connected"),
        (torch.tensor([[0, 2]]), ValueError, r"instance \(\) is not connected.* its 3 nodes"),
        (torch.tensor([[[0, 1], [1, 2]], [[0, 1], [3, 2]]]), ValueError, r"graph of instance \(1,\) is not connected"),
    ],
)
def test_bad_graphs_are_refused(edges, error, message):
    with pytest.raises(error, match=message):
        dl.SpanningTree(edges)


def test_scores_that_do_not_fit_the_graph_are_refused():
    with pytest.raises(ValueError, match=r"scores have 7 entries, .* for 4 nodes 6, for 5 nodes 10"):
        dl.SpanningTree().solve(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"scores have 5 entries, but the graph has 6 edges"):
        dl.SpanningTree(GRAPH).solve(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"edges has batch axes \(3,\), which do not broadcast to the scores' \(2,\)"):
        dl.SpanningTree(GRAPH.expand(3, 6, 2)).solve(torch.zeros(2, 6))
