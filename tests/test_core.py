"""Facts of the core that larger tests pass by, each on the smallest instance that shows it."""

import pytest
import torch

import directloss as dl
from directloss.losses.direct import evaluate_direct
from directloss.parts import Vertices, fit_cost
from directloss.structures.checks import LARGEST_SCORE

SCORES, COST = torch.tensor([[0.3, 0.1, -0.2], [0.0, 0.5, 0.4]]), torch.tensor([[1.0, -1.0, 0.5], [-2.0, 0.0, 1.0]])


@pytest.mark.parametrize("sides", ["one", "both"])
@pytest.mark.parametrize("epsilon", [2.0, -2.0, (-1.0, 3.0), (-3.0, 1.0)], ids=str)
def test_without_division_the_gradient_is_that_of_width_one(epsilon, sides):
    gradients = []
    for divide in (True, False):
        leaf = SCORES.clone().requires_grad_()
        evaluate_direct(leaf, COST, dl.Choice(), epsilon=epsilon, sides=sides, divide=divide).loss.backward()
        gradients.append(leaf.grad)
    width = 4.0 if isinstance(epsilon, tuple) or sides == "both" else 2.0
    assert gradients[1].any()
    torch.testing.assert_close(width * gradients[0], gradients[1])


def test_an_instance_is_informative_if_the_solutions_to_its_two_sides_differ():
    # y is the second; a step ahead changes nothing, one behind does, and the other way round; and with no cost neither.
    cost = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    scores = torch.tensor([[0.0, 1.0]]).expand(3, 2).clone().requires_grad_()
    both = evaluate_direct(scores, cost, dl.Choice(), epsilon=2.0, sides="both")
    assert both.informative().tolist() == [True, True, False]
    one = evaluate_direct(scores, cost, dl.Choice(), epsilon=2.0)
    assert one.informative().tolist() == [False, True, False]
    without_gradient = evaluate_direct(scores.detach(), cost, dl.Choice(), epsilon=2.0)
    assert without_gradient.informative().tolist() == [False, False, False]


def test_coordinates_are_as_many_as_the_axes_of_the_entries():
    with pytest.raises(ValueError, match="shorter"):
        Vertices.of_coordinates((3, 4), torch.tensor([0, 2]))


def test_the_cost_moves_to_the_device_and_dtype_of_the_scores():
    cost = torch.zeros(3)
    assert fit_cost(cost, torch.zeros(3)).data_ptr() == cost.data_ptr()
    assert fit_cost(cost, torch.zeros(3, device="meta")).is_meta
    assert fit_cost(cost, torch.zeros(3, dtype=torch.float64)).dtype == torch.float64


def test_the_largest_score_is_taken_and_more_is_refused():
    largest = torch.tensor([-LARGEST_SCORE, LARGEST_SCORE], dtype=torch.float64)
    assert dl.Choice().solve(largest).tolist() == [0.0, 1.0]
    assert dl.Choice().solve_along(largest / 2, largest, (0.5,)).tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="beyond"):
        dl.Choice().solve(largest.nextafter(2 * largest))
    with pytest.raises(ValueError, match="exceed"):
        dl.Choice().solve_along(largest / 2, largest, (1.0,))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_f1_and_its_maximiser_take_any_batch_axes(batch):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(*batch, 4, generator=generator, dtype=torch.float64)
    target = torch.rand(*batch, 4, generator=generator) < 0.5
    loss, alone = dl.costs.F1(target), dl.costs.F1(target.reshape(-1, 4))
    y = loss.augmented(theta, -1.5)
    assert torch.equal(y, alone.augmented(theta.reshape(-1, 4), -1.5).reshape(theta.shape))
    assert torch.equal(loss(y), alone(y.reshape(-1, 4)).reshape(batch))


def test_the_gradient_of_f1_where_nothing_is_chosen():
    y = torch.zeros(3, requires_grad=True)
    dl.costs.F1(torch.tensor([1.0, 0.0, 0.0]))(y).backward()
    assert y.grad.tolist() == [-2.0, 0.0, 0.0]


def test_a_family_of_one_is_its_single_maximiser():
    class Larger(dl.Structure):
        """One of two entries, for a family of scores only."""

        entry_dims = 1

        def _check_entries(self, entries):
            assert entries == (2,)

        def _maximize_along(self, parts, cost, steps):
            theta = torch.stack([parts[0] + step * cost for step in steps])
            return (Vertices(torch.Size((2,)), theta.argmax(-1, keepdim=True), None),)

    scores = torch.tensor([[0.0, 1.0], [3.0, 2.0]])
    assert Larger()._maximize((scores,))[0].dense(torch.float32).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_structures_over_no_entries_are_empty():
    v = Vertices.empty((2, 3), torch.Size((0,)), torch.device("cpu"))
    assert v.slots.shape == v.dense(torch.float32).shape == (2, 3, 0)


def test_other_data_are_checked_like_the_first():
    structure = dl.Choice(mask=torch.tensor([True, False]))
    assert structure.with_tensors([torch.tensor([False, True])]).solve(torch.zeros(2)).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="without an entry"):
        structure.with_tensors([torch.tensor([False, False])])


def test_a_target_between_0_and_1_weighs_by_how_sure_it_is():
    cost = dl.costs.weighted_hamming(torch.tensor([1.0, 2.0]), torch.tensor([[0.0, 0.25], [0.5, 1.0]]))
    assert cost.tolist() == [[1.0, 0.5], [0.0, -4.0]]
