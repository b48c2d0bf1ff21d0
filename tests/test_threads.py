"""The thread count changes how long a solve takes, and nothing else."""

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import directloss as dl
from directloss import threads


def problem():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(400, 16, 16, generator=generator), torch.randn(16, 16, generator=generator)


def solve(count):
    dl.set_num_threads(count)
    scores, cost = problem()
    return dl.Matching().solve_along(scores, cost, (0.0, 1.0, -1.0))


def test_results_do_not_depend_on_the_thread_count():
    alone = solve(1)
    for count in (2, 3, 7, None):
        assert torch.equal(solve(count), alone)


def test_the_count_is_remembered_and_none_follows_torch():
    dl.set_num_threads(3)
    assert dl.get_num_threads() == 3
    dl.set_num_threads(None)
    assert dl.get_num_threads() == torch.get_num_threads()


@pytest.mark.parametrize("count", [0, -2])
def test_a_count_below_one_is_refused_and_changes_nothing(count):
    dl.set_num_threads(2)
    with pytest.raises(ValueError, match=f"count is {count}, expected at least 1, or None to follow torch"):
        dl.set_num_threads(count)
    assert dl.get_num_threads() == 2


@pytest.mark.parametrize("count", [1.5, "2"])
def test_a_count_is_an_integer(count):
    with pytest.raises(TypeError, match="count"):
        dl.set_num_threads(count)


def test_an_infeasible_instance_is_found_in_whichever_thread_it_is():
    forbidden = torch.zeros(400, 16, 16, dtype=torch.bool)
    forbidden[371, 3] = True
    dl.set_num_threads(2)
    with pytest.raises(ValueError, match=r"instance \(371,\) without a perfect matching"):
        dl.Matching(forbidden).solve(problem()[0])


def test_threads_of_the_user_may_solve_at_the_same_time():
    dl.set_num_threads(2)
    scores, cost = problem()
    alone = dl.Matching().solve_along(scores, cost, (0.0, 1.0))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: dl.Matching().solve_along(scores, cost, (0.0, 1.0)), range(8)):
            assert torch.equal(found, alone)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_worker_solves_too():
    dl.set_num_threads(2)
    scores, cost = problem()
    total = dl.Matching().solve_along(scores, cost, (0.0, 1.0)).numpy().copy()  # the parent's pool exists now
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child():
        results.put(bool((dl.Matching().solve_along(scores, cost, (0.0, 1.0)).numpy() == total).all()))

    process = context.Process(target=child)
    process.start()
    process.join(60)
    alive = process.is_alive()
    if alive:
        process.kill()
    assert not alive, "the forked solve hangs"
    assert process.exitcode == 0
    assert results.get()


def test_long_work_on_one_thread_leaves_the_main_thread_waiting():
    dl.set_num_threads(1)
    at_once = threads.split(lambda first, last: threading.get_ident(), 5, least=1)
    assert at_once == [threading.get_ident()]
    elsewhere = threads.split(lambda first, last: threading.get_ident(), 5, least=1, long=True)
    assert len(elsewhere) == 1
    assert elsewhere != at_once


def test_what_fails_in_a_part_reaches_the_caller():
    dl.set_num_threads(2)

    def work(first, last):
        raise OverflowError(f"{first}")

    with pytest.raises(OverflowError, match="0"):
        threads.split(work, 8, least=1)
