"""Measures against scikit-learn, or by hand."""

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

import directloss as dl


@pytest.fixture
def lists():
    """Scores without ties, grades, and lengths from 2 to 9."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(40, 9, generator=generator, dtype=torch.float64)
    grades = torch.randint(0, 4, (40, 9), generator=generator)
    mask = torch.arange(9) < torch.randint(2, 10, (40, 1), generator=generator)
    return scores, grades, mask


@pytest.mark.parametrize("k", [None, 1, 3, 20])
@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_ndcg_is_scikit_learns(lists, k, gain):
    scores, grades, mask = lists
    found = dl.metrics.ndcg(scores, grades, k, mask=mask, gain=gain, without=0.0)
    for value, score, grade, there in zip(found, scores, grades, mask, strict=True):
        worth = 2.0**grade - 1 if gain == "exponential" else grade
        assert value.item() == pytest.approx(ndcg_score(worth[there][None], score[there][None], k=k), abs=1e-12)


def test_average_precision_is_scikit_learns(lists):
    scores, grades, mask = lists
    found = dl.metrics.average_precision(scores, grades > 1, mask=mask)
    for value, score, grade, there in zip(found, scores, grades, mask, strict=True):
        if (grade[there] > 1).any():
            assert value.item() == pytest.approx(average_precision_score(grade[there] > 1, score[there]), abs=1e-12)
        else:
            assert value == 0


def test_where_nothing_is_relevant_the_value_is_the_one_asked_for():
    scores, none = torch.randn(1, 4), torch.zeros(1, 4)
    assert dl.metrics.ndcg(scores, none).item() == 1
    assert dl.metrics.ndcg(scores, none, without=0.5).item() == 0.5
    assert dl.metrics.average_precision(scores, none, without=0.25).item() == 0.25


def test_bad_rankings_are_refused():
    scores = torch.randn(2, 4)
    with pytest.raises(ValueError, match="grades go down to -1"):
        dl.metrics.ndcg(scores, -torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"grades: got shape \(3,\)"):
        dl.metrics.ndcg(scores, torch.ones(3))
    with pytest.raises(ValueError, match="k is 0"):
        dl.metrics.ndcg(scores, torch.ones(4), k=0)
    with pytest.raises(ValueError, match="gain is 'square'"):
        dl.metrics.ndcg(scores, torch.ones(4), gain="square")


def test_attachment_counts_words_whose_head_is_right():
    """Two sentences, of 3 and 2 words; heads 0 2 0 against 0 2 2, and 2 0 against 2 0."""
    target, y = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    for word, (right, found) in enumerate(zip((0, 2, 0), (0, 2, 2), strict=True)):
        target[0, word, right], y[0, word, found] = 1, 1
    for word, head in enumerate((2, 0)):
        target[1, word, head] = y[1, word, head] = 1
    assert dl.metrics.attachment(y, target).item() == pytest.approx(4 / 5)
    assert dl.metrics.exact_match(y, target).item() == 0.5
    without_last = torch.tensor([[True, True, False], [True, True, True]])
    assert dl.metrics.attachment(y, target, mask=without_last).item() == 1
    assert dl.metrics.exact_match(y, target, mask=without_last).item() == 1


def test_positions_of_chains_are_counted_once_whatever_the_padding():
    lengths = torch.tensor([4, 2, 0])
    unary = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    target = dl.Chain(lengths).solve(unary)
    wrong = dl.Chain(lengths).solve(unary.where(torch.arange(4)[:, None] > 0, -unary))
    right = (wrong * target).sum().item()
    assert dl.metrics.position_accuracy(wrong, target).item() == pytest.approx(right / 6)
    assert dl.metrics.exact_match(wrong, target).item() == pytest.approx(1 / 3)  # the empty one
    with pytest.raises(ValueError, match="expected structures"):
        dl.metrics.position_accuracy(target[..., :3], target)
