import threading

import pytest

from captioning.data.images import Upload
from captioning.serving import decoding
from captioning.serving.decoding import PixelBudget
from tests.serving.photos import bomb


def together(sides: list[int], budget: int) -> int:
    """How many photos of these sides are decoded at a time, at most."""
    pixels = PixelBudget(budget)
    inside = most = 0
    changing = threading.Lock()
    met = threading.Barrier(len(sides))

    def decode(side: int) -> None:
        nonlocal inside, most
        photo = Upload("photo", bomb(side), 1_000_000)
        met.wait(20)
        with pixels.room_for(photo):
            with changing:
                inside += 1
                most = max(most, inside)
            event.wait(0.2)  # for others, which may come meanwhile
            with changing:
                inside -= 1

    event = threading.Event()
    threads = [threading.Thread(target=decode, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert inside == 0
    return most


def test_large_photos_are_decoded_one_at_a_time() -> None:
    assert together([60, 60, 60], budget=5000) == 1


def test_a_photo_larger_than_the_budget_is_decoded_alone() -> None:
    assert together([100, 10], budget=5000) == 1


def test_photos_that_cannot_be_read_need_no_room() -> None:
    budget = PixelBudget(1)
    with budget.room_for(Upload("one", bomb(1), 100)), budget.room_for(Upload("x", b"x", 100)):
        pass


def test_photos_that_will_be_refused_need_no_room() -> None:
    budget = PixelBudget(1)
    with budget.room_for(Upload("one", bomb(1), 100)), budget.room_for(Upload("x", bomb(50), 9)):
        pass


@pytest.mark.parametrize(("side", "is_given_back"), [(3000, True), (30, False)])
def test_a_large_photo_gives_its_memory_back_before_the_next_is_decoded(
    monkeypatch: pytest.MonkeyPatch, side: int, is_given_back: bool
) -> None:
    budget = PixelBudget(9_000_000)
    free = []
    monkeypatch.setattr(decoding, "give_back", lambda: free.append(budget.free))
    with budget.room_for(Upload("photo", bomb(side), 9_000_000)):
        pass
    assert free == ([0] if is_given_back else [])
    assert budget.free == 9_000_000
