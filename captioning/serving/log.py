"""What the server tells on stderr: one short line for each fault, and few of them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from traceback import extract_tb

LINES = 20
"""Most lines in a period."""

PERIOD = 60.0
"""Seconds."""

LONGEST_LINE = 300
"""Characters."""


class OneLine(logging.Formatter):
    """A fault in one line: what happened, why, and where in the program."""

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


class Rarely(logging.Filter):
    """Lets a few different records through in each period, and counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self._began = monotonic()
        self._told: set[str] = set()
        self._untold = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is told."""
        if monotonic() > self._began + PERIOD:
            if self._untold:
                record.msg = f"({self._untold} faults were not told) {record.msg}"
            self._began, self._untold = monotonic(), 0
            self._told.clear()
        fault = f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}"
        if fault in self._told or len(self._told) == LINES:
            self._untold += 1
            return False
        self._told.add(fault)
        return True


@contextmanager
def faults_on_stderr() -> Iterator[None]:
    """Tell faults in this way while the block lasts."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    handler.addFilter(Rarely())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
