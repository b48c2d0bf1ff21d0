"""Pools: what they know, what they answer, and that a checkpoint goes on exactly."""

import copy
import os
import pickle

import pytest
import torch

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "2000"))
STEPS = (0.0, 1.0, -2.0)


class Counting:
    """A maximiser of one of n that counts the instances it was asked for."""

    def __init__(self):
        self.asked = 0

    def __call__(self, scores):
        self.asked += scores[..., 0].numel()
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores)


def test_answers_are_the_best_of_the_solutions_known_then():
    """With share 0 a pool is the explicit list of what it knows."""
    for seed in range(-(-INSTANCES // 200)):
        generator = torch.Generator().manual_seed(seed)
        pool = dl.Pool(dl.Matching(), solve_share=0.0)
        pool.solve(torch.randn(1 + seed % 7, 4, 4, generator=generator))
        known = pool.solutions
        scores = torch.randn(200, 4, 4, generator=generator, dtype=torch.float64)
        if seed % 2:
            scores = scores.round()
        cost = torch.randn(4, 4, generator=generator, dtype=torch.float64)
        assert torch.equal(pool.solutions, known)
        expected = dl.Finite(known, entry_dims=2).solve_along(scores, cost, STEPS)
        assert torch.equal(pool.solve_along(scores, cost, STEPS), expected)


def test_every_instance_solved_afresh_gives_the_structures_own_answers(generator):
    pool, structure = dl.Pool(dl.Matching()), dl.Matching()
    for _ in range(5):
        scores, cost = torch.randn(20, 4, 4, generator=generator), torch.randn(4, 4, generator=generator)
        assert torch.equal(pool.solve_along(scores, cost, STEPS), structure.solve_along(scores, cost, STEPS))
    assert 1 < len(pool.solutions) <= 24


def test_the_share_of_instances_that_is_solved_afresh_is_the_one_asked_for(generator):
    count = Counting()
    pool = dl.Pool(dl.custom(count), solve_share=0.25)
    pool.solve(torch.randn(40, 6, generator=generator))
    assert count.asked == 40, "the first call solves for all"
    count.asked = 0
    for _ in range(50):
        pool.solve(torch.randn(40, 6, generator=generator))
    assert 400 < count.asked < 600  # 500 expected, with a standard deviation of 19
    count.asked = 0
    dl.Pool(dl.custom(count), solve_share=0.0).solve_along(torch.zeros(0, 6), torch.zeros(6), STEPS)
    assert count.asked == 0


def test_one_set_of_solutions_serves_all_steps_of_a_call(generator):
    """So no answer beats another of the same instance, whatever was solved afresh."""
    pool = dl.Pool(dl.Matching(), solve_share=0.3, size=5)
    for _ in range(30):
        scores, cost = torch.randn(2, 20, 4, 4, generator=generator), torch.randn(4, 4, generator=generator)
        y = pool.solve_along(scores, cost, STEPS)
        for step, own in zip(STEPS, y, strict=True):
            values = ((scores + step * cost) * y).sum((-1, -2))
            assert (((scores + step * cost) * own).sum((-1, -2)) >= values.amax(0) - 1e-4).all()


def test_solutions_are_kept_once_up_to_the_size_the_last_found_last(generator):
    pool = dl.Pool(dl.Choice(), size=3)
    for best in (0, 1, 2, 0, 3):
        pool.solve(torch.eye(5)[best])
    assert torch.equal(pool.solutions, torch.eye(5, dtype=torch.float64)[[2, 0, 3]])
    pool.add(-0.0 * torch.eye(5)[:1] + torch.eye(5)[3])
    assert len(pool.solutions) == 3
    y = pool.solve(torch.eye(5))
    assert torch.equal(y, torch.eye(5)), "a call answers with all that it found"
    assert len(pool.solutions) == 3


def test_targets_can_be_added(generator):
    pool = dl.Pool(dl.Choice(), solve_share=0.0)
    pool.add(torch.eye(4)[:2])
    scores = torch.randn(10, 4, generator=generator)
    assert torch.equal(pool.solve(scores)[:, :2], dl.Choice().solve(scores[:, :2]))


def steps_of(criterion, generator, count):
    """Losses and gradients of some training steps."""
    results = []
    for _ in range(count):
        scores = torch.randn(15, 4, 4, generator=generator).requires_grad_()
        cost = torch.randn(15, 4, 4, generator=generator)
        loss = criterion(scores, cost, scale=1.0, generator=generator)
        loss.backward()
        results += [loss.detach().reshape(1), scores.grad.flatten()]
    return torch.cat(results)


@pytest.mark.parametrize("keep", ["state_dict", "deepcopy", "pickle"])
def test_a_checkpoint_goes_on_exactly(keep, tmp_path):
    def make():
        return dl.DirectLoss(dl.Pool(dl.Matching(), solve_share=0.2, size=8), epsilon=-1.0, samples=2)

    criterion, generator = make(), torch.Generator().manual_seed(0)
    steps_of(criterion, generator, 3)
    if keep == "state_dict":
        torch.save(criterion.state_dict(), tmp_path / "state.pt")
        other = make()
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    else:
        other = copy.deepcopy(criterion) if keep == "deepcopy" else pickle.loads(pickle.dumps(criterion))
    again = torch.Generator()
    again.set_state(generator.get_state())
    ahead = steps_of(criterion, generator, 4)
    assert torch.equal(ahead, steps_of(other, again, 4))
    assert torch.equal(criterion.structure.solutions, other.structure.solutions)


def test_evaluation_keeps_nothing(generator):
    pool = dl.Pool(dl.Matching(), solve_share=0.5)
    pool.solve(torch.randn(2, 4, 4, generator=generator))
    before = copy.deepcopy(pool.state_dict()["_extra_state"])
    pool.eval()
    scores = torch.randn(30, 4, 4, generator=generator)
    y = pool.solve(scores)
    assert torch.equal(y, pool.solve(scores))
    after = pool.state_dict()["_extra_state"]
    assert torch.equal(before["solutions"], after["solutions"])
    assert torch.equal(before["random"], after["random"])


def test_the_seed_says_which_instances_are_solved_afresh(generator):
    first, scores = torch.randn(2, 5, 5, generator=generator), torch.randn(30, 5, 5, generator=generator)

    def run(seed):
        pool = dl.Pool(dl.Matching(), solve_share=0.5, seed=seed)
        pool.solve(first)
        return pool.solve(scores)

    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_heuristic_is_helped_by_what_is_known(generator):
    """A maximiser that sometimes errs is corrected by solutions of other instances, and nothing is raised."""

    def careless(scores):
        y = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])
        y[::2] = torch.nn.functional.one_hot(scores[::2].argmin(-1), scores.shape[-1])
        return y

    pool = dl.Pool(dl.custom(careless, exact=False))
    pool.add(torch.eye(4))
    scores = torch.randn(20, 4, generator=generator)
    assert torch.equal(pool.solve(scores), dl.Choice().solve(scores))


def test_data_shared_by_all_instances_are_allowed(generator):
    mask = torch.tensor([True, False, True, True])
    scores = torch.randn(2, 3, 4, generator=generator)
    for shape in ((4,), (1, 4), (1, 1, 4)):
        pool = dl.Pool(dl.Choice(mask.reshape(shape)))
        assert torch.equal(pool.solve(scores), dl.Choice(mask).solve(scores))

    def allowed(scores, mask):
        return torch.nn.functional.one_hot(scores.masked_fill(~mask, -torch.inf).argmax(-1), scores.shape[-1])

    pool = dl.Pool(dl.custom(allowed).given(mask.reshape(1, 1, 4)), solve_share=0.5)
    leaf = scores.clone().requires_grad_()
    dl.direct_loss(leaf, scores.flip(-1), pool, epsilon=-1.0, scale=1.0, samples=3, generator=generator).backward()
    assert len(pool.solutions) > 1


@pytest.mark.parametrize(
    ("make", "scores", "message"),
    [
        (lambda: dl.Pool(dl.Choice), torch.zeros(2), "structure is the class Choice"),
        (lambda: dl.Pool(dl.Choice(), 1.5), torch.zeros(2), "solve_share is 1.5, expected a share from 0 to 1"),
        (lambda: dl.Pool(dl.Choice(), size=0), torch.zeros(2), "size is 0, expected at least 1"),
        (lambda: dl.Pool(dl.Choice(torch.ones(3, 2) > 0)), torch.zeros(3, 2), "a pool needs one feasible set for all"),
        (lambda: dl.Pool(dl.Subset(torch.tensor([1, 2]))), torch.zeros(2, 3), "a pool needs one feasible set for all"),
        (
            lambda: dl.Pool(dl.custom(lambda s, limit: s > limit).given(torch.zeros(3, 1))),
            torch.zeros(3, 2),
            "a pool needs one feasible set for all",
        ),
        (lambda: dl.Pool(dl.Chain()), (torch.zeros(4, 3), torch.zeros(3, 3)), "Pool takes one tensor"),
    ],
)
def test_bad_input_is_refused_at_the_boundary(make, scores, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make().solve(scores)


def test_another_number_of_entries_is_refused():
    pool = dl.Pool(dl.Choice())
    pool.solve(torch.zeros(3))
    with pytest.raises(ValueError, match=r"this pool knows solutions over \(3,\), but the scores have entries \(4,\)"):
        pool.solve(torch.zeros(4))


def test_what_is_known_answers_a_large_batch_in_pieces(monkeypatch, generator):
    pool = dl.Pool(dl.Choice(), solve_share=0.0)
    pool.add(torch.eye(6)[:4])
    monkeypatch.setattr("directloss.structures.finite._CHUNK", 12)
    scores = torch.randn(2, 9, 6, generator=generator)
    assert torch.equal(pool.solve(scores), torch.eye(6)[scores[..., :4].argmax(-1)])
