"""Who speaks of what goes on, when nobody else has for a while."""

import threading
import time
from collections.abc import Callable

Line = Callable[[], str | None]
"""What is to be said at that moment; None for nothing."""

INTERVAL = 30.0
"""Seconds from one line to the next."""


class Reporter:
    """Says a line about what was begun last, when nothing has been said for a while.

    Args:
        write: puts a line where people read it.
        clock: seconds.
        interval: seconds without a line, after which one is due.

    Attributes:
        lock: held whenever what a line tells may change.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        interval: float = INTERVAL,
    ) -> None:
        self.clock = clock
        self._write = write
        self._interval = interval
        self._said = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget all: in a forked process there is no thread, and its lock may never open."""
        self.lock = threading.RLock()
        self._going_on: list[Line] = []
        self._ended = threading.Condition(self.lock)
        self._thread: threading.Thread | None = None

    def begin(self, line: Line) -> None:
        """Tell of something from now on.

        Args:
            line: what is to be said of it.
        """
        with self.lock:
            if not self._going_on:
                self.said()
            self._going_on.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()

    def end(self, line: Line) -> None:
        """Tell of it no more."""
        with self.lock:
            if line in self._going_on:
                self._going_on.remove(line)
                self._ended.notify()

    def said(self) -> None:
        """Remember that something has just been said."""
        with self.lock:
            self._said = self.clock()

    def speak_if_due(self) -> float:
        """Say a line, if it is time for one; returns the seconds until it is."""
        with self.lock:
            left = self._said + self._interval - self.clock()
            if left > 0 or not self._going_on:
                return left
            self.said()
            if (line := self._going_on[-1]()) is not None:
                self._write(line)
            return self._interval

    def _run(self) -> None:
        with self.lock:
            while self._going_on:
                self._ended.wait(max(self.speak_if_due(), 0.001))
            self._thread = None
