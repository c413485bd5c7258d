"""Progress of long work on stderr: tqdm's bars on a terminal, elsewhere a line every half minute.

    with ProgressBar("features", "images", total=7000) as bar:
        ...
        bar.update(16)

Where stderr is not a terminal, work of less than half a minute prints nothing, longer work lines
such as ``features: 31 % (2,170 of 7,000 images, 24.10 images/s, 03:21 left)``.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from captioning.terminal import printable

INTERVAL = 30.0
"""Seconds between lines, and before the first one."""

RANKS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Environment variables in which torchrun, Lightning and SLURM number processes."""

COUNTED = "{desc}: {percentage:.0f} % ({n:,} of {total:,} {unit}, {rate_fmt}, {remaining} left)"
UNCOUNTED = "{desc}: {n:,} {unit} ({rate_fmt}, {elapsed} so far)"

_open: list[str] = []
"""Names of the stages and bars in progress, the innermost last."""

_hidden: list[str] = []
"""Names of the hidden stages in progress."""


class ProgressBar:
    """Work whose parts are counted.

    Args:
        name: of the work.
        units: what the parts are called, such as ``images``.
        total: how many parts there are, if known.
        initial: how many were done before; the rate is of new ones only.
        leave: keep the bar on the terminal at the end.
        shown: if false, nothing is shown.
    """

    def __init__(
        self,
        name: str,
        units: str,
        total: int | None = None,
        initial: int = 0,
        leave: bool = False,
        shown: bool = True,
    ) -> None:
        self.name, self.units, self.total = printable(name), units, total
        self.done = self._initial = initial
        self._began = time.monotonic()
        self._due = self._began + INTERVAL
        is_shown = shown and not _hidden and sys.stderr is not None and not sys.stderr.closed
        self._prints = is_shown and not sys.stderr.isatty()
        self._bar = tqdm(
            desc=self.name,
            unit=f" {units}",
            total=total,
            initial=initial,
            leave=leave,
            disable=not is_shown or self._prints,
        )
        _open.append(name)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_moving(self) -> bool:
        """Whether there is a bar on a terminal."""
        return not self._bar.disable

    def update(self, count: int = 1) -> None:
        """Count `count` more parts as done."""
        self.done += count
        self._bar.update(count)
        if self._prints and time.monotonic() >= self._due:
            self._due = time.monotonic() + INTERVAL
            _print(self._line())

    def show(self, text: str) -> None:
        """Show a text at the end of a moving bar, with the next update."""
        self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """End the bar; further calls do nothing."""
        self._bar.close()
        if self.name in _open:
            _open.remove(self.name)

    def _line(self) -> str:
        line: str = tqdm.format_meter(
            self.done,
            self.total,
            time.monotonic() - self._began,
            prefix=self.name,
            unit=f" {self.units}",
            initial=self._initial,
            bar_format=(COUNTED if self.total else UNCOUNTED).replace("{unit}", self.units),
        )
        return line


@contextmanager
def stage(name: str, shown: bool = True) -> Iterator[None]:
    """Work of unknown length; if it takes long, one line says that it is still in progress.

    Args:
        name: of the work.
        shown: if false, hides this stage and everything inside it.
    """
    names = _open if shown else _hidden
    names.append(name)
    timer = threading.Timer(INTERVAL, _still_in, [name])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        names.remove(name)


def _still_in(name: str) -> None:
    if _open[-1:] == [name] and not _hidden:
        _print(f"{printable(name)}: {duration(INTERVAL)} so far")


def say(line: str, file: Any = None) -> None:
    """Print a line without breaking a bar.

    Args:
        line: the text.
        file: an open text file; stderr by default.
    """
    tqdm.write(line, file=file or sys.stderr)


def _print(line: str) -> None:
    try:
        say(line)
    except (OSError, ValueError):  # full or closed, which is no reason to stop the work
        return


def is_first_process() -> bool:
    """Whether this process reports progress, of all that a launcher has started."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def duration(seconds: float) -> str:
    """Seconds as minutes or hours, such as ``3:21`` or ``1:02:11``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
