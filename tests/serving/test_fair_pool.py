import asyncio

import pytest

from captioning.serving.fair_pool import FairPool


async def served_order(clients: str, cancelled: int | None = None) -> str:
    """The order in which one resource serves the tasks of clients, a letter each."""
    pool, order = FairPool(["resource"]), []

    async def use(client: str) -> None:
        async with pool.lend(client):
            order.append(client)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(use(client)) for client in clients]
    await asyncio.sleep(0)  # the first one is served, the others wait
    if cancelled is not None:
        tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return "".join(order)


@pytest.mark.parametrize(
    ("clients", "order"), [("aaaaab", "abaaaa"), ("aaaabbbb", "abababab"), ("abcd", "abcd")]
)
def test_clients_take_turns_in_the_order_in_which_they_came(clients: str, order: str) -> None:
    assert asyncio.run(served_order(clients)) == order


def test_a_task_that_is_cancelled_gives_its_resource_back() -> None:
    for cancelled in (0, 1):
        assert asyncio.run(served_order("abc", cancelled))[-1] == "c"
