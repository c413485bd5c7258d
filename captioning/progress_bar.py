"""How far long work is: a moving bar on a terminal, elsewhere a line every half minute.

    with ProgressBar("features", "images", total=7000) as bar:
        ...
        bar.update(16)

Where stderr is no terminal, this says nothing for half a minute, and then lines such as

    features: 31 % (2,170 of 7,000 images, 24.1/s, 3:21 left)

They come on time however long a part takes, about whatever was begun last: a `stage`, whose length
nobody knows, tells how long it has been going on. All that is told of meanwhile goes through `say`,
which breaks no bar, and after which there is nothing to add for half a minute.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from tqdm import tqdm

from captioning.pace import Pace
from captioning.reporter import Reporter
from captioning.terminal import printable

RANKS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID")
"""What torchrun, Lightning and SLURM number processes by."""


def _to_stderr(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # full, closed, or read by nobody: no reason to stop the work
        return


_reporter = Reporter(_to_stderr)
os.register_at_fork(after_in_child=_reporter.reset)

_hidden: list[str] = []
"""The stages going on whose progress nobody wants to see."""


class ProgressBar:
    """Work of which the parts are counted, for as long as the block lasts.

    Args:
        name: of the work.
        units: what the parts are called, such as ``images``.
        total: how many there are; none if nobody knows.
        initial: how many were done before; the rate is of new ones only.
        leave: keep the bar on the terminal in the end.
        shown: False shows nothing.
        note: gives what a line tells besides.
    """

    def __init__(
        self,
        name: str,
        units: str,
        total: int | None = None,
        initial: int = 0,
        leave: bool = False,
        shown: bool = True,
        note: Callable[[], str | None] | None = None,
    ) -> None:
        self.name = printable(name)
        self.units = units
        self.total = total
        self.done = initial
        self._note = note
        self._bar: Any = None
        self._began = _reporter.clock()
        self._pace = Pace(initial, self._began)
        self._is_told = False
        if not shown or _hidden or sys.stderr is None or sys.stderr.closed:
            return
        if not sys.stderr.isatty():
            self._is_told = True
            _reporter.begin(self._line)
        elif units:
            self._bar = _Bar(
                desc=self.name, unit=f" {units}", total=total, initial=initial, leave=leave
            )
            self._bar.pace = self._pace

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_moving(self) -> bool:
        """Whether there is a bar on a terminal."""
        return self._bar is not None

    @property
    def rate(self) -> float | None:
        """Parts a second; None before anything is done."""
        with _reporter.lock:
            return self._pace.rate

    @property
    def seconds_left(self) -> float | None:
        """None before anything is done, and where nobody knows how many parts there are."""
        with _reporter.lock:
            if self.total is None:
                return None
            return self._pace.seconds_left(self.total, _reporter.clock())

    def update(self, count: int = 1) -> None:
        """Say that `count` more parts are done."""
        with _reporter.lock:
            self.done += count
            self._pace.record(self.done, _reporter.clock())
        if self._bar is not None:
            self._bar.update(count)

    def show(self, text: str) -> None:
        """Show a text at the end of a moving bar, with the next update."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """End it; any number of times."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._is_told:
            self._is_told = False
            _reporter.end(self._line)

    def _line(self) -> str:
        now = _reporter.clock()
        rate = self._pace.rate
        so_far = f"{duration(now - self._began)} so far"
        if not self.units:
            return f"{self.name}: {so_far}"
        speed = so_far if rate is None else _speed(rate)
        if self.total is None:
            return f"{self.name}: {self.done:,} {self.units}, {speed}"
        parts = [f"{self.done:,} of {self.total:,} {self.units}", speed]
        left = self._pace.seconds_left(self.total, now)
        if left is not None:
            parts.append(f"{duration(left)} left")
        if self._note is not None and (note := self._note()):
            parts.append(note)
        return f"{self.name}: {100 * self.done // max(self.total, 1)} % ({', '.join(parts)})"


class _Bar(tqdm):
    """A bar whose rate does not jump."""

    pace: Pace | None = None

    @property
    def format_dict(self) -> Any:
        """What the bar is made of."""
        known = super().format_dict
        if self.pace is not None:
            with _reporter.lock:
                known["rate"] = self.pace.rate
        return known


@contextmanager
def stage(name: str, shown: bool = True) -> Iterator[None]:
    """Work of which nobody knows how long it takes; no bar moves, but lines come.

    Args:
        name: what is being done.
        shown: False says nothing, neither of this, nor of any progress within, nor of what it is
            itself within.
    """
    if shown:
        with ProgressBar(name, ""):
            yield
        return
    _hidden.append(name)
    _reporter.begin(_nothing)
    try:
        yield
    finally:
        _reporter.end(_nothing)
        _hidden.remove(name)


def say(line: str, file: Any = None) -> None:
    """Print a line without breaking a bar.

    Args:
        line: the text.
        file: an open text file; stderr if none.
    """
    tqdm.write(line, file=file or sys.stderr)
    if file is None:
        _reporter.said()


def is_first_process() -> bool:
    """Whether this process tells of the progress, of all that a launcher has started."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def duration(seconds: float) -> str:
    """Such as ``3:21`` or ``1:02:11``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _nothing() -> None:
    """The line of what is hidden."""


def _speed(rate: float) -> str:
    return f"{rate:,.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"
