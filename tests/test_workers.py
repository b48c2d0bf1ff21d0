"""Solvers that take one instance at a time, in processes of their own."""

import copy
import os
import time

import pytest
import torch

import directloss as dl


def largest(scores):
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


def largest_allowed(scores, allowed):
    return largest(scores.masked_fill(~allowed, -torch.inf))


def with_process(scores):
    """The largest; its value says which process solved."""
    time.sleep(0.05)  # so that no worker takes all
    return os.getpid() * largest(scores)


def dies_at_seven(scores):
    if scores[0] == 7:
        os._exit(3)
    return largest(scores)


def fails_at_seven(scores):
    if scores[0] == 7:
        raise ArithmeticError("seven is too much")
    return largest(scores)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_workers_give_what_one_process_gives_and_share_the_work():
    scores, cost = drawn(7, 4).requires_grad_(), drawn(7, 4, seed=1)
    structure = dl.custom(largest, batched=False, workers=2)
    results = []
    for one in (structure, dl.custom(largest, batched=False), dl.Choice()):
        leaf = scores.detach().clone().requires_grad_()
        loss = dl.direct_loss(
            leaf, cost, one, epsilon=1.0, sides="both", scale=1.0, samples=2, generator=torch.Generator().manual_seed(0)
        )
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


def test_what_given_makes_shares_the_processes_and_copies_start_their_own():
    structure = dl.custom(with_process, batched=False, workers=2, exact=False)
    scores = drawn(8, 3)
    own = set(structure.solve(scores).amax(-1).tolist())
    assert len(own) == 2
    assert os.getpid() not in own
    assert set(structure.given().solve(scores).amax(-1).tolist()) == own
    # A copy is made by way of the state that is pickled.
    assert (
        not set(copy.deepcopy(structure).solve(scores).amax(-1).tolist()) & own
    )  # made by the state that is pickled too


def test_given_data_reach_the_workers():
    allowed = torch.tensor([[True, False, True], [False, True, True]])
    structure = dl.custom(largest_allowed, batched=False, workers=1).given(allowed)
    scores = drawn(2, 3)
    assert torch.equal(structure.solve(scores), dl.Choice(mask=allowed).solve(scores))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (dies_at_seven, r"the worker that solved instance 5 died \(exit code 3\)"),
        (fails_at_seven, r"the maximiser failed for instance 5:\n(.|\n)*ArithmeticError: seven is too much"),
    ],
    ids=["crash", "exception"],
)
def test_a_failure_names_its_instance_and_the_next_call_works(function, message):
    structure = dl.custom(function, batched=False, workers=1)
    scores = drawn(8, 3)
    scores[5, 0] = 7
    with pytest.raises(RuntimeError, match=message):
        structure.solve(scores)
    assert torch.equal(structure.solve(drawn(8, 3)), dl.Choice().solve(drawn(8, 3)))


def test_functions_that_cannot_travel_are_refused():
    with pytest.raises(TypeError, match="can be pickled, one defined at the top of a module"):
        dl.custom(lambda scores: scores, batched=False, workers=2)
    with pytest.raises(ValueError, match="pass batched=False"):
        dl.custom(largest, workers=2)
    with pytest.raises(ValueError, match="workers is -1"):
        dl.custom(largest, batched=False, workers=-1)


def test_a_batched_function_is_called_once_for_all_steps_and_samples():
    shapes = []

    def counted(scores):
        shapes.append(tuple(scores.shape))
        return largest(scores)

    scores = drawn(7, 4).requires_grad_()
    dl.direct_loss(scores, drawn(7, 4, seed=1), dl.custom(counted), epsilon=1.0, sides="both", scale=1.0, samples=5)
    assert shapes == [(3, 5, 7, 4)]
    with torch.no_grad():
        dl.direct_loss(scores, drawn(7, 4, seed=1), dl.custom(counted), epsilon=1.0)
    dl.direct_loss(scores.detach(), drawn(7, 4, seed=1), dl.custom(counted), epsilon=1.0)
    assert shapes[1:] == [(1, 1, 7, 4)] * 2
