"""A kernel's number of threads may not depend on how many chunks came along or on what other
threads do.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sumus.gradients.threads import _workers, one_thread_each


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_piece_sees_one_torch_thread_and_the_caller_keeps_its_own(
    threads: int, pieces: int
) -> None:
    torch.set_num_threads(threads)
    assert one_thread_each([torch.get_num_threads] * pieces) == [1] * pieces
    assert one_thread_each([torch.is_grad_enabled] * pieces) == [False] * pieces
    assert torch.get_num_threads() == threads


def test_a_worker_that_idled_while_the_process_changed_its_mind_keeps_one_thread() -> None:
    """A second worker may start, find nothing to do, and see its first kernel after the caller has
    set the process to two threads again.
    """
    torch.set_num_threads(2)
    _workers.cache_clear()
    pool = _workers(2)
    pool.submit(int).result()  # the thread has started, no kernel ran in it
    torch.set_num_threads(2)
    assert pool.submit(torch.get_num_threads).result() == 1
