"""Bad input is refused at the public boundary, in words that say what came and what to do."""

import pytest
import torch
from tables import MASK, direct_loss, every_structure

import directloss as dl

NAN, INF = float("nan"), float("inf")


def spoilt(row, value):
    scores = row.scores(3)
    scores.view(-1)[4] = value
    return scores


@every_structure
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_scores_and_costs_must_be_finite(row, value):
    with pytest.raises(ValueError, match=r"scores hold 1 NaN or infinite entries .* a mask of the structure"):
        row.structure.solve(spoilt(row, value))
    with pytest.raises(ValueError, match="cost hold 1 NaN or infinite entries"):
        row.structure.solve_along(row.scores(3), spoilt(row, value), (0.0, 1.0))
    with pytest.raises(ValueError, match="NaN or infinite"):
        direct_loss(spoilt(row, value), row.scores(3), row.structure, epsilon=1.0, scale=1.0, samples=2)


@every_structure
def test_scores_must_be_floating_point_tensors(row):
    with pytest.raises(TypeError, match=r"torch.int64, expected a floating-point dtype: call .float\(\)"):
        row.structure.solve(row.scores(3).long())
    with pytest.raises(TypeError, match=r"floating-point dtype: call .float\(\)"):
        direct_loss(row.scores(3).long(), row.scores(3), row.structure, epsilon=1.0, scale=1.0)
    for wrong in (row.scores(3).tolist(), row.scores(3).numpy(), None):
        with pytest.raises(TypeError, match=rf"{type(wrong).__name__}, expected a torch.Tensor"):
            row.structure.solve(wrong)
        with pytest.raises(TypeError, match=type(wrong).__name__):
            direct_loss(wrong, row.scores(3), row.structure, epsilon=1.0)
        with pytest.raises(TypeError, match=type(wrong).__name__):
            direct_loss(row.scores(3), wrong, row.structure, epsilon=1.0)


@every_structure
def test_scores_must_have_the_axes_of_the_entries(row):
    short = torch.zeros(row.entries[:-1])
    with pytest.raises(ValueError, match=rf"needs at least {row.structure.entry_dims} axes, its entries last"):
        row.structure.solve(short)
    # Not even where the axis of the samples could be mistaken for an entry axis.
    with pytest.raises(ValueError, match=r"axes|shape"):
        direct_loss(short, row.scores(), row.structure, epsilon=1.0, scale=1.0, samples=row.entries[-1])


@every_structure
def test_costs_must_broadcast_to_the_scores(row):
    wider = torch.zeros(*row.entries[:-1], row.entries[-1] + 1)
    for cost in (wider, row.scores(2)):
        with pytest.raises(ValueError, match=r"does not broadcast to the scores' .* give the cost the shape"):
            row.structure.solve_along(row.scores(3), cost, (0.0, 1.0))
        with pytest.raises(ValueError, match=r"cost has shape .* does not broadcast"):
            direct_loss(row.scores(3), cost, row.structure, epsilon=1.0, scale=1.0, samples=5)


@every_structure
def test_costs_must_not_have_an_axis_for_the_samples(row):
    with pytest.raises(ValueError, match=r"cost has shape .* does not broadcast"):
        direct_loss(row.scores(3), row.scores(5, 3), row.structure, epsilon=1.0, scale=1.0, samples=5)


@every_structure
@pytest.mark.parametrize("steps", [(), (NAN,), (0.0, INF), (0.0, -INF)])
def test_steps_must_be_finite(row, steps):
    with pytest.raises(ValueError, match="expected one finite number or more"):
        row.structure.solve_along(row.scores(3), row.scores(3), steps)


@every_structure
def test_scores_beyond_what_float64_sums_hold_are_refused(row):
    with pytest.raises(ValueError, match=r"reach 1e.200, beyond 1e.150; scale them down"):
        row.structure.solve(torch.full(row.entries, 1e200, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"exceed 1e.150, up to 1e.160; scale them down"):
        row.structure.solve_along(row.scores(), torch.full(row.entries, 1e100, dtype=torch.float64), (1e60,))


def test_structures_that_do_not_exist_are_refused():
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k is {k}, expected at least 1"):
            dl.Subset(k)
    with pytest.raises(TypeError, match=r"k is 2.0, expected an int"):
        dl.Subset(2.0)
    with pytest.raises(ValueError, match="cannot take k = 6 of n = 5 entries; lower k"):
        dl.Subset(6).solve(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="expected n >= 1"):
        dl.Choice().solve(torch.zeros(2, 0))
    with pytest.raises(ValueError, match=r"expected .n, m. with n, m >= 1"):
        dl.Matching().solve(torch.zeros(2, 3, 0))


@pytest.mark.parametrize(
    ("forbidden", "error", "message"),
    [
        (MASK.float(), TypeError, "torch.float32, expected a boolean tensor"),
        (MASK.tolist(), TypeError, "list, expected a boolean tensor"),
        (MASK[0], ValueError, r"forbidden has shape \(3,\), expected at least 2 axes"),
        (MASK[:2], ValueError, r"mask of \(2, 3\) entries, but the scores have \(3, 3\)"),
        (MASK.expand(2, 1, 3, 3), ValueError, "do not broadcast"),
        (MASK.expand(5, 3, 3), ValueError, "do not broadcast"),
    ],
    ids=["float", "list", "vector", "entries", "more-batch-axes", "larger-batch"],
)
def test_a_mask_is_boolean_and_fits(forbidden, error, message):
    with pytest.raises(error, match=message):
        dl.Matching(forbidden).solve(torch.zeros(1, 3, 3))


def test_a_mask_must_fit_the_batch():
    with pytest.raises(ValueError, match=r"forbidden has batch axes \(4,\), which do not broadcast"):
        dl.Matching(MASK.expand(4, 3, 3)).solve(torch.zeros(5, 3, 3))


# Two rows that share one column: no perfect matching (Hall).
STARVED = {
    "square": torch.tensor([[0, 1, 1], [0, 1, 1], [0, 0, 0]]).bool(),
    "wide": torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1]]).bool(),
    "tall": torch.tensor([[0, 1, 1, 1], [0, 1, 1, 1]]).bool().mT,
    "empty column": torch.tensor([[1, 0], [1, 0]]).bool(),
    "all": torch.ones(2, 2).bool(),
}


@pytest.mark.parametrize("forbidden", STARVED.values(), ids=STARVED.keys())
def test_a_mask_without_a_perfect_matching_names_the_instance(forbidden):
    shape = tuple(forbidden.shape)
    with pytest.raises(ValueError, match=r"instance \(\) without a perfect matching; allow more pairs"):
        dl.Matching(forbidden).solve(torch.zeros(shape))
    some = torch.zeros(2, 4, *shape, dtype=torch.bool)
    some[1, 2] = forbidden
    with pytest.raises(ValueError, match=r"instance \(1, 2\) without a perfect matching"):
        dl.Matching(some).solve(torch.zeros(2, 4, *shape))
    assert len(dl.Matching(forbidden).enumerate(torch.zeros(shape))) == 0


def test_a_mask_with_batch_axes_is_not_enumerated():
    with pytest.raises(ValueError, match=r"forbidden has batch axes \(2,\)"):
        dl.Matching(MASK.expand(2, 3, 3)).enumerate(torch.zeros(3, 3))


@pytest.mark.parametrize(
    ("maximiser", "error", "message"),
    [
        (lambda s: s[..., :-1], ValueError, r"returned shape \(.*3, 3\) for scores of shape \(.*3, 4\)"),
        (lambda s: s.argmax(-1), ValueError, r"pass batched=False if it takes one instance at a time"),
        (lambda s: s.tolist(), TypeError, "returned list, expected a torch.Tensor"),
        (lambda s: None, TypeError, "returned NoneType, expected a torch.Tensor"),
        (lambda s: torch.full_like(s, NAN), ValueError, "returned 12 NaN or infinite entries of 12"),
    ],
    ids=["shape", "index", "list", "none", "nan"],
)
def test_a_custom_maximiser_must_return_structures(maximiser, error, message):
    with pytest.raises(error, match=message):
        dl.custom(maximiser).solve(torch.zeros(3, 4))


def test_custom_arguments_are_checked():
    with pytest.raises(TypeError, match="function is int, expected a callable"):
        dl.custom(3)
    with pytest.raises(ValueError, match="entry_dims is 0, expected at least 1"):
        dl.custom(torch.sign, entry_dims=0)
    with pytest.raises(ValueError, match=r"pass structures= to dl.custom"):
        dl.custom(torch.sign).enumerate(torch.zeros(3))


BAD_OPTIONS = [
    ({"epsilon": 0.0}, "epsilon is 0.0; expected a finite number other than 0"),
    ({"epsilon": INF}, "epsilon is inf"),
    ({"epsilon": NAN}, "epsilon is nan"),
    ({"samples": 0}, "samples is 0, expected at least 1"),
    ({"samples": -3}, "samples is -3"),
    ({"sides": "none"}, "sides is 'none', expected 'one' .* or 'both'"),
    ({"scale": -1.0}, "scale .*-1.0.*; expected finite numbers >= 0 .* softplus"),
    ({"scale": NAN}, "scale .* expected finite numbers >= 0"),
    ({"scale": INF}, "scale .* expected finite numbers >= 0"),
    ({"scale": torch.tensor([1.0, -0.5, 1.0])}, "scale .*-0.5.* expected finite numbers >= 0"),
    ({"scale": torch.tensor(NAN)}, "scale .* expected finite numbers >= 0"),
    ({"scale": torch.tensor([1.0, INF, 1.0])}, "scale .* expected finite numbers >= 0"),
    ({"scale": torch.ones(2)}, "does not fit scores of shape .* expected one number, one for each instance"),
    ({"scale": torch.ones(7, 3, 1, 1)}, "does not fit scores of shape"),
]


@every_structure
@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[str(options) for options, _ in BAD_OPTIONS])
def test_options_of_the_loss_are_checked(row, options, message):
    with pytest.raises(ValueError, match=message):
        direct_loss(row.scores(3), row.scores(3), row.structure, **{"epsilon": 1.0, **options})
