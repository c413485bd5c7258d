import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from captioning.pace import Pace

MINUTE = 60.0


def steady(seconds: float, count: int, first: float = 0.0) -> list[float]:
    """When each of `count` parts is done, the first one later by `first` seconds."""
    return [first + (number + 1) * seconds for number in range(count)]


def uneven(count: int) -> list[float]:
    draw = random.Random(0)
    times, now = [], 0.0
    for _ in range(count):
        now += draw.uniform(0.2, 1.4)
        times.append(now)
    return times


def with_stall(times: list[float], at: int, seconds: float) -> list[float]:
    return [time + (seconds if number >= at else 0) for number, time in enumerate(times)]


def estimates(times: list[float], initial: int = 0) -> Iterator[tuple[float, float, float]]:
    """Each second: the time, what is told to be left, and what will have been."""
    pace, coming = Pace(initial, 0.0), list(enumerate(times, initial + 1))
    total = initial + len(times)
    for second in range(1, int(times[-1])):
        while coming and coming[0][1] <= second:
            pace.record(*coming.pop(0))
        left = pace.seconds_left(total, float(second))
        if left is not None:
            yield float(second), left, times[-1] - second


WORK: dict[str, Callable[[], list[float]]] = {
    "fast": lambda: steady(0.01, 20_000),
    "slow parts": lambda: steady(25.0, 40),
    "late start": lambda: steady(0.5, 1000, first=40.0),
    "uneven parts": lambda: uneven(600),
    "long": lambda: steady(3.0, 3000),
}


@pytest.mark.parametrize("times", WORK.values(), ids=WORK)
def test_after_the_first_minute_the_time_left_is_right_within_a_quarter(
    times: Callable[[], list[float]],
) -> None:
    done = times()
    since = max(MINUTE, done[1])  # of the first part alone, nobody knows what it took to begin
    part = max(b - a for a, b in pairwise(done[1:]))
    for now, told, truth in estimates(done):
        if now > since:
            assert abs(told - truth) <= max(0.25 * truth, part), now


def test_compiling_in_the_middle_of_an_epoch_is_no_part_of_the_rate() -> None:
    times = with_stall(steady(0.7, 800), at=100, seconds=25.0)
    told = [(now, abs(left - truth) / truth) for now, left, truth in estimates(times)]
    after = [error for now, error in told if 100 < now < times[-1] - 20]
    assert max(after) < 0.25


def test_a_wait_leaves_the_time_left_as_it_was() -> None:
    pace = Pace(0, 0.0)
    for now in range(1, 21):
        pace.record(now, float(now))
    assert [pace.seconds_left(100, now) for now in (20.0, 20.5, 30.0, 90.0)] == [80, 79.5, 79, 79]


def test_resumed_work_counts_new_parts_only() -> None:
    pace = Pace(5000, 0.0)
    for now in range(1, 11):
        pace.record(5000 + 2 * now, float(now))
    assert pace.rate == pytest.approx(2)
    assert pace.seconds_left(5220, 10.0) == pytest.approx(100)


def test_before_anything_is_done_nothing_is_known() -> None:
    pace = Pace(7, 0.0)
    assert (pace.rate, pace.seconds_left(10, 50.0)) == (None, None)


def test_the_first_part_is_all_there_is_to_go_by_at_first() -> None:
    pace = Pace(0, 0.0)
    pace.record(4, 10.0)
    assert pace.seconds_left(12, 10.0) == 20


def test_work_that_becomes_slower_for_good_is_told_so() -> None:
    times = [*steady(0.5, 400), *(200 + 2.0 * number for number in range(1, 401))]
    told = {now: (left, truth) for now, left, truth in estimates(times)}
    left, truth = told[700.0]
    assert abs(left - truth) < 0.25 * truth


def test_what_is_remembered_does_not_grow_with_the_work() -> None:
    pace = Pace(0, 0.0)
    for number in range(1, 100_001):
        pace.record(number, number / 10)
    assert len(pace._moments) < 500
    assert pace.rate == pytest.approx(10)
