"""A solver that is wrong is found out: by its own answers, and by ``check_structure``."""

import warnings

import numpy as np
import pytest
import torch
from tables import Row, cheapest, every_structure

import directloss as dl
from directloss.structures.certificate import WrongMaximizerError


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def second_best(scores):
    """Not the largest, but the next."""
    return torch.nn.functional.one_hot(scores.topk(2, -1).indices[..., 1], scores.shape[-1])


def first_always(scores):
    return torch.nn.functional.one_hot(torch.zeros_like(scores[..., 0], dtype=torch.int64), scores.shape[-1])


def in_half(scores):
    """Right, but computed in half precision."""
    return torch.nn.functional.one_hot(scores.half().argmax(-1), scores.shape[-1])


def loss(function, seed=0, **options):
    scores = drawn(20, 6, seed=seed).requires_grad_()
    return dl.direct_loss(scores, drawn(20, 6, seed=seed + 1), dl.custom(function, **options), epsilon=1.0)


@every_structure
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_right_solvers_pass(row: Row, dtype):
    for seed in range(5):
        scores = row.scores(40, seed=seed, dtype=dtype)
        row.structure.solve_along(scores, row.scores(40, seed=seed + 9, dtype=dtype), (0.0, 1.0, -3.0, 50.0))
        row.structure.solve_along(scores.round(), row.scores(40, seed=seed + 9, dtype=dtype).round(), (0.0, 1.0, -1.0))


def test_a_minimiser_is_found_out_and_named():
    with pytest.raises(
        WrongMaximizerError, match=r"did not maximise.*worth .* more \(it seems to minimise: pass minimize"
    ):
        loss(cheapest)
    loss(cheapest, minimize=True)


def test_a_solver_that_stops_too_early_is_found_out_with_the_gap():
    with pytest.raises(
        WrongMaximizerError, match=r"at index \(0, \d+\) of its scores and step .* its answer is worth [-\d.]+, but"
    ) as found:
        loss(second_best)
    assert "minimise" not in str(found.value)
    assert "exact=False" in str(found.value)


def test_a_heuristic_is_reported_not_refused():
    with pytest.warns(UserWarning, match="did not maximise"):
        value = loss(second_best, exact=False)
    value.backward()


def test_rounding_is_not_an_error():
    loss(in_half, exact=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = (1e4 + drawn(50, 6)).requires_grad_()
        dl.direct_loss(
            scores,
            drawn(50, 6, seed=1),
            dl.custom(lambda s: torch.nn.functional.one_hot(s.argmax(-1), 6)),
            epsilon=1e-3,
        )


def test_the_constant_answer_is_found_out_by_enumeration():
    # All its answers are the same, so that none beats another.
    loss(first_always)
    structure = dl.custom(first_always, structures=torch.eye(6))
    with pytest.raises(ValueError, match=r"did not maximise.* is possible"):
        dl.check_structure(structure, torch.tensor([0.0, 1.0, 2.0, 0.0, 0.0, 0.0]))


@every_structure
def test_check_structure_passes_what_is_right(row: Row):
    dl.check_structure(row.structure, row.scores(7))
    dl.check_structure(row.structure, row.scores())
    dl.check_structure(row.structure, row.scores(dtype=torch.float32) * 0)


class Moody:
    """Another answer each time."""

    def __init__(self):
        self.calls = 0

    def __call__(self, scores):
        self.calls += 1
        return (
            torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]) if self.calls % 2 else first_always(scores)
        )


def batch_matters(scores):
    """Right for one instance, wrong in a batch."""
    if scores.dim() == 1:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])
    return torch.nn.functional.one_hot(scores.argmax(-1).roll(1, -1), scores.shape[-1])


def not_a_member(scores):
    return 2.0 * torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])


WRONG = {
    "minimiser": (cheapest, (5, 4), "seems to minimise"),
    "second": (second_best, (5, 4), "did not maximise"),
    "moody": (Moody(), (5, 4), "answered the same scores differently"),
    "batch": (batch_matters, (5, 4), "did not maximise"),
    "not-a-member": (not_a_member, (4,), "none of its 4 enumerated ones"),
}


@pytest.mark.parametrize(("function", "shape", "message"), WRONG.values(), ids=WRONG.keys())
def test_check_structure_finds_what_is_wrong(function, shape, message):
    with pytest.raises(ValueError, match=message):
        dl.check_structure(dl.custom(function, structures=torch.eye(4)), drawn(*shape))


def test_a_function_that_works_in_place_keeps_to_its_own_copy():
    def in_place(scores):
        y = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])
        scores.zero_()
        return y

    dl.check_structure(dl.custom(in_place), drawn(5, 4))


def test_classes_and_functions_instead_of_structures_say_what_to_write():
    scores = drawn(3, 4)
    for wrong, message in (
        (dl.Choice, r"the class Choice; write dl.Choice\("),
        (cheapest, r"function, expected a structure such as dl.Choice\(\); dl.custom"),
        ("choice", "str, expected a structure"),
    ):
        with pytest.raises(TypeError, match=message):
            dl.direct_loss(scores, scores, wrong, epsilon=1.0)
        with pytest.raises(TypeError, match=message):
            dl.DirectLoss(wrong, epsilon=1.0)
        with pytest.raises(TypeError, match=message):
            dl.check_structure(wrong, scores)
        with pytest.raises(TypeError, match=message):
            dl.exact(scores[0], scores[0], wrong)
    for wrong, message in (
        (dl.Gumbel, r"the class Gumbel; write dl.Gumbel\(\)"),
        ("gumbel", r"'gumbel', expected dl.Gumbel"),
    ):
        with pytest.raises(TypeError, match=message):
            dl.direct_loss(scores, scores, dl.Choice(), epsilon=1.0, scale=1.0, noise=wrong)
        with pytest.raises(TypeError, match=message):
            dl.perturb(scores, noise=wrong)
    with pytest.raises(ValueError, match=r"samples is 5, but without noise .* scale=1.0"):
        dl.direct_loss(scores, scores, dl.Choice(), epsilon=1.0, samples=5)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_numpy_numbers_are_numbers(number):
    scores = drawn(3, 4).requires_grad_()
    plain = dl.direct_loss(
        scores,
        drawn(3, 4, seed=1),
        dl.Choice(),
        epsilon=2.0,
        scale=1.0,
        samples=3,
        generator=torch.Generator().manual_seed(0),
    )
    other = dl.direct_loss(
        scores, drawn(3, 4, seed=1), dl.Choice(), epsilon=number(2), scale=number(1), samples=np.int64(3),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert torch.equal(plain, other)
    assert dl.GrowingEpsilon(number(2)).start == 2.0
