"""Works on several batches at once on a CPU, one per thread: a single one keeps few cores busy."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from threading import Barrier, Lock
from typing import TypeVar

import torch

WAITING = 2
"""Number of batches that wait for a thread, so that none runs out of work."""

MAX_THREADS = 16
"""Maximum number of batches at once: more would wait for Python's lock, and each needs 150 MB."""

MIN_BATCH = 4
"""Minimum number of photos in the batch of a thread."""

if hasattr(os, "register_at_fork"):  # a fork has no threads of OpenMP, and would wait for them
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))

Item = TypeVar("Item")
Result = TypeVar("Result")

_sharing = Lock()
"""Held while a pool divides PyTorch's threads among its own, so that no other pool starts."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Group items in lists of `size`; the last list may be shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def thread_count(device: torch.device) -> int:
    """Maximum number of batches that `in_threads` works on at once."""
    if device.type != "cpu":
        return 1
    with _sharing:
        return min(MAX_THREADS, torch.get_num_threads())


def read_ahead(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
    *,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[Result]:
    """The result of `work` for each item, in order; threads are at most `ahead` items ahead.

    The pool is shut down at the end.
    """
    pool = pool or ThreadPoolExecutor()
    futures: deque[Future[Result]] = deque()
    try:
        for item in items:
            futures.append(pool.submit(work, item))
            if len(futures) > ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    device: torch.device,
    *,
    in_turn: bool = False,
) -> Generator[Result, None, None]:
    """The result of `work` for each item, in order.

    A CPU works on several items at once, each in a thread with its share of PyTorch's threads;
    other devices, and a CPU with `in_turn`, take one item after another. The calling thread reads
    the items, a few ahead of the work. Its settings of gradients and autocast hold in all threads.
    """
    gradients = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled(device.type)
    dtype, cache = torch.get_autocast_dtype(device.type), torch.is_autocast_cache_enabled()

    def work_or_raise(item: Item | Exception) -> Result:
        if isinstance(item, Exception):  # of reading, raised after the results of earlier items
            raise item
        precision = torch.autocast(device.type, dtype, autocast, cache)
        with torch.set_grad_enabled(gradients), precision:
            return work(item)

    def read() -> Iterator[Item | Exception]:
        try:
            yield from items
        except Exception as error:
            yield error

    queue = read()
    first_items = list(islice(queue, 1 if in_turn else thread_count(device)))
    threads = len(first_items)  # no more than there are items
    queue = chain(first_items, queue)
    if threads < 2:
        yield from map(work_or_raise, queue)
    else:
        yield from read_ahead(work_or_raise, queue, threads + WAITING, pool=_sharing_pool(threads))


def _sharing_pool(count: int) -> ThreadPoolExecutor:
    """A pool whose threads have started, each with its share of PyTorch's threads."""
    pool, all_started = ThreadPoolExecutor(count), Barrier(count)

    def take_share(share: int) -> None:
        torch.get_num_threads()  # otherwise the first operation sets the number of other threads
        torch.set_num_threads(share)
        all_started.wait()

    with _sharing:
        threads = torch.get_num_threads()
        try:
            list(pool.map(take_share, [threads // count] * count))
        finally:
            all_started.abort()  # nobody waits, unless a thread could not start
            torch.set_num_threads(threads)  # for threads that start later
    return pool
