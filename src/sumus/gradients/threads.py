"""The chunks of a batch on several threads, with one torch thread in each.

Threads inside a kernel wait for each other at the end of every layer; chunks never do. And a kernel
that always runs on one thread treats a record alike however many chunks there are, so that its bits
cannot depend on how many others came along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

from sumus.purity import one_torch_thread

__all__ = ["one_thread_each", "one_torch_thread"]

T = TypeVar("T")


def one_thread_each(work: Sequence[Callable[[], T]]) -> list[T]:
    """Run pieces of work next to each other, each with one torch thread and without recording
    gradients.
    """
    threads = torch.get_num_threads()
    if threads > 1 and len(work) > 1:
        return list(_workers(threads).map(_without_gradients, work))
    with one_torch_thread():
        return [_without_gradients(piece) for piece in work]


def _without_gradients(work: Callable[[], T]) -> T:
    with torch.no_grad():  # a property of the thread
        return work()


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, thread_name_prefix="sumus-chunk", initializer=_settle_on_one_thread
    )


def _settle_on_one_thread() -> None:
    """torch copies the process's number of threads on first use in a thread: touch it, then set
    1.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
