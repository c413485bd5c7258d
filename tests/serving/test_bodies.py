import asyncio
from collections.abc import Callable

import pytest
from fastapi import HTTPException
from starlette.types import Message, Receive

from captioning.serving.bodies import Bodies


def pieces(*sizes: int, is_whole: bool = True) -> Receive:
    """What gives a body of these pieces, or waits for ever where it is not whole."""
    rest = list(sizes)

    async def receive() -> Message:
        if not rest:
            await asyncio.Event().wait()
        size = rest.pop(0)
        return {
            "type": "http.request",
            "body": bytes(size),
            "more_body": bool(rest) or not is_whole,
        }

    return receive


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks work until something is so."""
    while not condition():
        await asyncio.sleep(0)


def test_a_body_is_passed_on_unchanged() -> None:
    async def sizes() -> list[tuple[int, bool]]:
        body = await Bodies(100, 100).read(pieces(30, 0, 40), "")
        messages = [await body.receive() for _ in range(3)]
        return [(len(message["body"]), message["more_body"]) for message in messages]

    assert asyncio.run(sizes()) == [(30, True), (0, True), (40, False)]


def test_the_slowest_of_the_bodies_that_fill_the_memory_gives_way() -> None:
    async def answers() -> tuple[int, str, bool]:
        bodies = Bodies(100, 250)
        slow = [asyncio.create_task(bodies.read(pieces(90, is_whole=False), "")) for _ in range(2)]
        await until(lambda: bodies.held == 180)
        quick = await bodies.read(pieces(50, 50), "")
        with pytest.raises(HTTPException) as refused:
            await slow[0]
        is_second_waiting = not slow[1].done()
        slow[1].cancel()
        return refused.value.status_code, refused.value.detail, quick.is_whole and is_second_waiting

    status, sentence, are_others_kept = asyncio.run(answers())
    assert status == 503
    assert sentence.startswith("other requests came faster than this one")
    assert are_others_kept


def test_bodies_that_are_whole_keep_their_memory_until_they_are_released() -> None:
    async def answer() -> bool:
        bodies = Bodies(100, 150)
        first = await bodies.read(pieces(100), "")
        with pytest.raises(HTTPException, match="too many large photos are waiting"):
            await bodies.read(pieces(100), "")
        bodies.release(first)
        return (await bodies.read(pieces(100), "")).is_whole

    assert asyncio.run(answer())
