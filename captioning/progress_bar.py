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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from captioning.errors import printable

INTERVAL = 30.0
"""Seconds between lines, and before the first one."""

RANKS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Environment variables in which torchrun, Lightning and SLURM number processes."""

COUNTED = "{desc}: {percentage:.0f} % ({n:,} of {total:,} UNITS, {rate_fmt}, {remaining} left)"
UNCOUNTED = "{desc}: {n:,} UNITS ({rate_fmt}, {elapsed} so far)"


class LineStream:
    """A stream that gets each state of a bar as a line."""

    def write(self, text: str) -> None:
        if line := text.strip("\r\n "):
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        return


class ProgressBar(tqdm):
    """Work whose parts are counted; only the first of several processes shows it.

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
        self.is_moving = shown and sys.stderr is not None and sys.stderr.isatty()
        lines: dict[str, Any] = {
            "file": LineStream(),
            "bar_format": (COUNTED if total else UNCOUNTED).replace("UNITS", units),
            "delay": INTERVAL,
            "mininterval": INTERVAL,
            "maxinterval": 2 * INTERVAL,
            "miniters": 1,
        }
        super().__init__(
            desc=printable(name),
            unit=f" {units}",
            total=total,
            initial=initial,
            leave=leave and self.is_moving,
            disable=not (shown and is_first_process() and sys.stderr is not None),
            **{} if self.is_moving else lines,
        )

    def show(self, text: str) -> None:
        """Show a text at the end of a moving bar, with the next update."""
        self.set_postfix_str(text, refresh=False)


@contextmanager
def stage(name: str, shown: bool = True) -> Iterator[None]:
    """Work of unknown length; if it takes long, one line says that it is still in progress."""
    timer = threading.Timer(INTERVAL, say, [f"{printable(name)}: {duration(INTERVAL)} so far"])
    timer.daemon = True
    if shown and is_first_process():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say(line: str, file: Any = None) -> None:
    """Print a line without breaking a bar.

    Args:
        line: the text.
        file: an open text file; stderr by default.
    """
    tqdm.write(line, file=file or sys.stderr)


def is_first_process() -> bool:
    """Whether this process reports progress, of all that a launcher has started."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def duration(seconds: float) -> str:
    """Seconds as minutes or hours, such as ``3:21`` or ``1:02:11``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
