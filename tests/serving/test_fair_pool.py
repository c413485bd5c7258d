import asyncio

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


def test_a_client_of_many_tasks_does_not_delay_another() -> None:
    assert asyncio.run(served_order("aaaaab")) == "abaaaa"


def test_clients_with_several_tasks_take_turns() -> None:
    assert asyncio.run(served_order("aaaabbbb")) == "abababab"


def test_tasks_of_a_client_are_first_come_first_served() -> None:
    assert asyncio.run(served_order("abcd")) == "abcd"


def test_a_task_that_is_cancelled_gives_its_resource_back() -> None:
    for cancelled in (0, 1):
        assert asyncio.run(served_order("abc", cancelled))[-1] == "c"
