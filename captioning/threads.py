"""Batches at once on a CPU, each in a thread of its own: one batch keeps few cores busy."""

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
"""Batches that wait for a thread, so that none runs out of work."""

MOST = 16
"""The most batches at once: more would wait for Python's lock, and each takes 150 MB or more."""

LEAST = 4
"""Photos of a batch that are worth a thread."""

if hasattr(os, "register_at_fork"):  # a fork has no threads of OpenMP, and would wait for them
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))

Item = TypeVar("Item")
Result = TypeVar("Result")

_sharing = Lock()
"""Held while threads take shares of PyTorch's threads; one that starts then would take one, too."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`; the last list holds the rest."""
    items = iter(items)
    while part := list(islice(items, size)):
        yield part


def thread_count(device: torch.device) -> int:
    """The most batches that `in_threads` works on at once."""
    if device.type != "cpu":
        return 1
    with _sharing:
        return min(MOST, torch.get_num_threads())


def read_ahead(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[Result]:
    """The result of `work` for each item, in order; threads are at most `ahead` items ahead.

    The pool is shut down at the end.
    """
    pool = pool or ThreadPoolExecutor()
    begun: deque[Future[Result]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) > ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    device: torch.device,
    in_turn: bool = False,
) -> Generator[Result, None, None]:
    """The result of `work` for each item, in order.

    On a CPU several items are worked on at once, each by a thread with its share of PyTorch's
    threads; elsewhere one after another. Gradients and autocast are as in the calling thread.

    The calling thread reads the items, few ahead. With `in_turn`, a CPU takes one item after
    another, too.
    """
    gradients = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled(device.type)
    dtype, cache = torch.get_autocast_dtype(device.type), torch.is_autocast_cache_enabled()

    def done(item: Item | Exception) -> Result:
        if isinstance(item, Exception):  # of reading an item, raised after the results before it
            raise item
        precision = torch.autocast(device.type, dtype, autocast, cache)
        with torch.set_grad_enabled(gradients), precision:
            return work(item)

    def read() -> Iterator[Item | Exception]:
        try:
            yield from items
        except Exception as error:
            yield error

    waiting = read()
    first = list(islice(waiting, 1 if in_turn else thread_count(device)))
    if len(first) < 2:
        yield from map(done, chain(first, waiting))
    else:
        pool = _sharing_pool(len(first))
        yield from read_ahead(done, chain(first, waiting), len(first) + WAITING, pool)


def _sharing_pool(count: int) -> ThreadPoolExecutor:
    """A pool whose threads have started, each with its share of PyTorch's threads."""
    pool, all_started = ThreadPoolExecutor(count), Barrier(count)

    def take(share: int) -> None:
        torch.get_num_threads()  # otherwise the first operation sets the number of other threads
        torch.set_num_threads(share)
        all_started.wait()

    with _sharing:
        threads = torch.get_num_threads()
        try:
            list(pool.map(take, [threads // count] * count))
        finally:
            all_started.abort()  # nobody waits, unless a thread could not start
            torch.set_num_threads(threads)  # of threads that start from now on
    return pool
