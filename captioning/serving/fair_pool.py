"""Shares a few resources fairly between clients, so that one with much to do delays no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Resource = TypeVar("Resource")


class Turns:
    """Counts the tasks that each client has at a time."""

    def __init__(self) -> None:
        self._tasks: Counter[str] = Counter()

    @contextmanager
    def of_task(self, client: str) -> Iterator[int]:
        """How many tasks of the client are ahead of this one, which lasts as long as the block."""
        turn = self._tasks[client]
        self._tasks[client] += 1
        try:
            yield turn
        finally:
            self._tasks[client] -= 1
            if not self._tasks[client]:
                del self._tasks[client]


class FairPool(Generic[Resource]):
    """Lends resources to tasks of clients: a client's nth task waits for n - 1 of each other one.

    This is fair queueing (Nagle 1987, RFC 970) with tasks instead of packets. Tasks of one client
    are first come, first served.

    Args:
        resources: each is used by one task at a time.
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._idle = list(resources)
        self._waiting: list[tuple[int, int, asyncio.Future[Resource]]] = []  # a heap
        self._turns = Turns()
        self._arrivals = count()

    @asynccontextmanager
    async def lend(self, client: str) -> AsyncIterator[Resource]:
        """A resource for the block, which begins once it is this task's turn."""
        loan: asyncio.Future[Resource] = asyncio.get_running_loop().create_future()
        with self._turns.of_task(client) as turn:
            heappush(self._waiting, (turn, next(self._arrivals), loan))
            self._assign()
            try:
                yield await loan
            finally:
                if not loan.cancelled():  # else the task was cancelled while it waited
                    self._idle.append(loan.result())
                    self._assign()

    def _assign(self) -> None:
        while self._idle and self._waiting:
            _, _, loan = heappop(self._waiting)
            if not loan.cancelled():
                loan.set_result(self._idle.pop())
