"""``Vertices`` against dense tensors: every operation of the compact form is the one on the structures themselves."""

import itertools

import pytest
import torch

from directloss.layout import Layout, pack
from directloss.parts import Vertices, as_parts

ENTRIES = torch.Size((3, 2, 4))
LEADING = (2, 5, 3)  # steps, samples, one batch axis


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def forms(seed=0):
    """Ones, values at positions (one slot filled up with a zero), and every entry in order."""
    order = torch.rand(*LEADING, ENTRIES.numel(), generator=torch.Generator().manual_seed(seed)).argsort(-1)
    positions = order[..., :6]
    values = drawn(*LEADING, 6, seed=seed)
    values[..., -1] = 0
    return {
        "ones": Vertices(ENTRIES, positions, None),
        "values": Vertices(ENTRIES, positions, values),
        "dense": Vertices(ENTRIES, None, drawn(*LEADING, ENTRIES.numel(), seed=seed)),
    }


every_form = pytest.mark.parametrize("form", ["ones", "values", "dense"])
# Shapes that broadcast to (samples, batch, *ENTRIES): axes missing or of size 1, of the batch and of the entries.
SHAPES = [
    (5, 3, 3, 2, 4),
    (5, 1, 3, 2, 4),
    (1, 3, 3, 2, 4),
    (3, 3, 2, 4),
    (1, 3, 2, 4),
    (3, 2, 4),
    (2, 4),
    (4,),
    (),
    (1, 2, 1),
    (3, 1, 1, 1),
    (3, 1, 4),
    (3, 3, 1, 1),
    (5, 1, 1, 2, 1),
]


@every_form
def test_dense_puts_each_value_at_its_position(form):
    v = forms()[form]
    y = v.dense(torch.float64)
    assert y.shape == (*LEADING, *ENTRIES)
    if v.positions is None:
        assert torch.equal(y.flatten(3), v.values)
        return
    values = torch.ones(*LEADING, 6).double() if v.values is None else v.values
    for t, s, b in itertools.product(*map(range, LEADING)):
        one = torch.zeros(ENTRIES.numel(), dtype=torch.float64)
        for position, value in zip(v.positions[t, s, b].tolist(), values[t, s, b].tolist(), strict=True):
            one[position] += value
        assert torch.equal(y[t, s, b].flatten(), one)


@every_form
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inner_is_the_sum_of_products_with_weights_that_broadcast(form, shape):
    v, weights = forms()[form], drawn(*shape, seed=1)
    expected = (v.dense(torch.float64) * weights).sum((-1, -2, -3))
    torch.testing.assert_close(v.inner(weights), expected)
    picked = v.at(weights)
    assert picked.shape == v.slots.shape


@every_form
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_difference_is_that_of_the_dense_structures_summed_to_a_shape(form, shape, weighted):
    v = forms()[form]
    weights = (drawn(*v.slots.shape[1:], seed=2), drawn(*v.slots.shape[1:], seed=3)) if weighted else None
    ahead, behind = (v.select(index) for index in (1, 0))
    if weighted:
        ahead, behind = (
            Vertices(ENTRIES, one.positions, weight if one.values is None else one.values * weight)
            for one, weight in zip((ahead, behind), weights, strict=True)
        )
    dense = ahead.dense(torch.float64) - behind.dense(torch.float64)
    padded = (*[1] * (5 - len(shape)), *shape)
    expected = dense.sum_to_size(padded).reshape(shape)
    torch.testing.assert_close(v.difference((1, 0), shape, torch.float64, weights), expected)


@every_form
@pytest.mark.parametrize("other", ["ones", "values", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])  # kernels read the first two
def test_the_gap_is_the_difference_and_what_it_weighs(form, other, dtype):
    ahead, behind = forms()[form], forms(seed=1)[other]
    weights = drawn(*LEADING, *ENTRIES, seed=2).to(dtype)
    expected = ahead.dense(dtype) - behind.dense(dtype)
    worth = 3 * (expected * weights).double().sum((-1, -2, -3))
    close = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 0.2}[dtype]
    difference, each = ahead.gap(behind, weights, factor=3.0)
    torch.testing.assert_close(difference, expected)
    torch.testing.assert_close(each.double(), worth, rtol=0, atol=close)
    assert difference.dtype == each.dtype == dtype
    again, total = ahead.gap(behind, weights, factor=3.0, add_up=True)
    assert torch.equal(again, difference)
    torch.testing.assert_close(total.double(), worth.sum(), rtol=0, atol=30 * close)
    assert not any(tensor.any() for tensor in ahead.gap(forms()[form], weights))


@every_form
def test_structures_that_agree_leave_exactly_nothing(form):
    v = forms()[form]
    same = Vertices(
        ENTRIES, *(None if part is None else part[:1].expand(LEADING[0], *part.shape[1:]) for part in v[1:])
    )
    weights = drawn(*v.slots.shape[1:], seed=2)
    for shape in SHAPES:
        assert not same.difference((0, 1), shape, torch.float64).any()
        assert not same.difference((0, 1), shape, torch.float64, (weights, weights)).any()
    assert not same.select(0).differs(same.select(1)).any()


def test_where_only_one_slot_differs_the_others_leave_exactly_nothing():
    # 0.1 + 0.2 + 0.3 depends on the order; what both have must not enter a sum at all.
    positions = torch.tensor([[[[0, 1, 2]]], [[[0, 1, 3]]]])
    v = Vertices(torch.Size((4,)), positions, None)
    difference = v.difference((1, 0), (1, 4), torch.float64)
    assert difference.tolist() == [[0.0, 0.0, -1.0, 1.0]]
    assert v.select(0).unequal(v.select(1)).tolist() == [[[False, False, True]]]


@pytest.mark.parametrize("changed", ["positions", "values"])
def test_structures_differ_by_a_position_or_by_a_value(changed):
    v = forms()["values"].select(0)
    other = {
        "positions": Vertices(ENTRIES, v.positions.roll(1, -1), v.values),
        "values": Vertices(ENTRIES, v.positions, v.values + torch.eye(6)[2].double()),
    }[changed]
    assert v.differs(other).all()
    assert not v.differs(v).any()
    one = torch.zeros(v.slots.shape[:-1], dtype=torch.bool)
    one[1, 2] = True
    mixed = Vertices(
        ENTRIES,
        torch.where(one[..., None], other.positions, v.positions),
        torch.where(one[..., None], other.values, v.values),
    )
    assert torch.equal(v.differs(mixed), one)


def test_coordinates_are_those_of_the_entries():
    rows, columns = torch.tensor([[0, 1], [2, 1]]), torch.tensor([[3, 0], [2, 3]])
    y = Vertices.of_coordinates((3, 4), rows, columns).dense(torch.float32)
    for instance in range(2):
        assert y[instance].nonzero().tolist() == sorted(
            [r, c] for r, c in zip(rows[instance].tolist(), columns[instance].tolist(), strict=True)
        )


@every_form
def test_vertices_pass_through_tensors_and_back(form):
    vertices = (forms()[form], forms(seed=1)["values"])
    back = Layout.of(vertices).unpack(pack(vertices))
    for one, other in zip(vertices, back, strict=True):
        assert one.entries == other.entries
        assert all(a is b for a, b in zip(one, other, strict=True))


def test_dense_structures_keep_every_entry():
    y = drawn(2, 3, 4)
    for dims, entries in ((1, (4,)), (2, (3, 4)), (3, (2, 3, 4))):
        v = Vertices.of_dense(y, dims)
        assert v.entries == entries
        assert torch.equal(v.dense(torch.float64), y)


def test_scores_are_a_tensor_or_a_tuple_of_parts():
    one, other = torch.zeros(2), torch.zeros(3, 3)
    assert as_parts(one) == (one,)
    assert as_parts([one, other]) == (one, other)
    for wrong, message in (((), "tuple"), ((one, None), "NoneType"), ((one, other.long()), "int64"), ("a", "str")):
        with pytest.raises(TypeError, match=message):
            as_parts(wrong)


@every_form
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_and_tensor_operations_give_the_same(form, dtype, monkeypatch):
    v = forms()[form]
    v = v._replace(values=None if v.values is None else v.values.to(dtype))
    weights, shape = drawn(3, *ENTRIES, seed=1).to(dtype), (3, *ENTRIES)

    def results():
        return [
            v.dense(dtype),
            v.inner(weights),
            torch.from_numpy(v.weigh(weights)),
            v.average(weights),
            v.average(weights, 3),
            v.select(0).average(weights[0]),
            v.difference((1, 0), shape, dtype),
            v.difference((0, 1), shape, dtype, factor=-0.3),
        ]

    fast = results()
    monkeypatch.setattr("directloss.parts.on_cpu", lambda tensor: False)
    for one, other in zip(fast, results(), strict=True):
        assert one.dtype == other.dtype == dtype
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_an_infinite_factor_leaves_nothing_of_nothing(on_cpu, monkeypatch):
    monkeypatch.setattr("directloss.parts.on_cpu", lambda tensor: on_cpu)
    v = Vertices(torch.Size((4,)), torch.tensor([[[[0, 1]]], [[[0, 3]]]]), None)
    found = v.difference((1, 0), (1, 4), torch.float32, factor=float("inf"))
    assert found.tolist() == [[0.0, -float("inf"), 0.0, float("inf")]]
