"""How fast work goes, and how long it will still take."""

from collections import deque
from itertools import pairwise
from typing import NamedTuple

SHORTEST, LONGEST = 60.0, 1800.0
"""Seconds of the past that a rate is of: half of all since the first part was done, within these.

What was slow at the beginning is forgotten so, and a single part that took long moves little.
"""

GRAINS = 200
"""Moments that are remembered, about, however many parts are done."""

STALL = 5
"""A wait of so many times the others' mean cost is left out, if it is the only one: compiling."""


class _Moment(NamedTuple):
    time: float
    done: int


class Pace:
    """The rate of steady work, from the moments at which parts of it were done.

    What comes before the first part is done is no part of the rate: it holds what begins only
    once, such as starting processes. The same holds for a single stall later.

    Args:
        done: how many parts were done before; they count for nothing.
        now: when the work begins, in seconds of any clock.
    """

    def __init__(self, done: int, now: float) -> None:
        self._beginning = _Moment(now, done)
        self._first: _Moment | None = None
        self._moments: deque[_Moment] = deque()

    def record(self, done: int, now: float) -> None:
        """Remember that so many parts are done now."""
        moment = _Moment(now, done)
        if self._first is None:
            self._first = moment
        since = now - self._first.time
        if len(self._moments) > 1 and now - self._moments[-2].time < max(0.5, since / GRAINS):
            self._moments[-1] = moment
        else:
            self._moments.append(moment)
        oldest = now - min(max(since / 2, SHORTEST), LONGEST)
        while len(self._moments) > 2 and self._moments[1].time <= oldest:
            self._moments.popleft()

    @property
    def rate(self) -> float | None:
        """Parts a second; None before anything is done."""
        steps = self._steps()
        seconds = sum(time for time, _ in steps)
        return sum(done for _, done in steps) / seconds if seconds else None

    def seconds_left(self, total: int, now: float) -> float | None:
        """How long the rest will take; None before anything is done.

        Args:
            total: the parts that there are.
            now: on the clock of `record`.
        """
        rate = self.rate
        if rate is None:
            return None
        steps = self._steps()
        done_at, done = self._moments[-1]
        # Of the part in work, no more can be over than parts take.
        waited = min(now - done_at, sum(time for time, _ in steps) / len(steps))
        return max((total - done) / rate - waited, 0.0)

    def _steps(self) -> list[tuple[float, int]]:
        """Seconds and parts from one moment to the next."""
        moments = list(self._moments)
        if len(moments) == 1:  # there is nothing better yet
            moments.insert(0, self._beginning)
        steps = [
            (after.time - before.time, after.done - before.done)
            for before, after in pairwise(moments)
            if after.done > before.done
        ]
        if len(steps) > 3:
            slowest = max(steps, key=lambda step: step[0] / step[1])
            others = list(steps)
            others.remove(slowest)
            mean = sum(time for time, _ in others) / sum(done for _, done in others)
            if slowest[0] / slowest[1] > STALL * mean:
                return others
        return steps
