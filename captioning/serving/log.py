"""The server's log on stderr: one short line per fault, and a limited number of lines."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from traceback import extract_tb

LINES = 20
"""The most lines in a period."""

PERIOD = 60.0
"""Seconds; the line limit and the memory of past faults start anew after it."""

LONGEST_LINE = 300
"""Characters."""


class OneLine(logging.Formatter):
    """Formats a fault as one line: what happened, why, and where in the program."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = record.getMessage().strip()
        if line.startswith("Traceback"):
            line = line.splitlines()[-1]
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line += f": {type(error).__name__}: {error}"
            if error.__traceback__ is not None:
                place = extract_tb(error.__traceback__)[-1]
                line += f" ({Path(place.filename).name}, line {place.lineno})"
        line = " ".join(line.split())
        return f"captioning: {line}"[:LONGEST_LINE].encode("ascii", "backslashreplace").decode()


class RateLimit(logging.Filter):
    """Passes up to `LINES` distinct records per period and counts the others.

    Args:
        clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._logged: set[str] = set()
        self._suppressed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        if self._clock() > self._began + PERIOD:
            if self._suppressed:
                record.msg = f"({self._suppressed} faults were not logged) {record.msg}"
            self._began, self._suppressed = self._clock(), 0
            self._logged.clear()
        fault = f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}"
        if fault in self._logged or len(self._logged) == LINES:
            self._suppressed += 1
            return False
        self._logged.add(fault)
        return True


@contextmanager
def faults_on_stderr(clock: Callable[[], float] = monotonic) -> Iterator[None]:
    """Log faults to stderr in this form while the block lasts.

    Args:
        clock: gives the time in seconds, which periods are measured by.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    handler.addFilter(RateLimit(clock))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
