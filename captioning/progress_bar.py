"""Progress of long work on stderr: tqdm's bars on a terminal, elsewhere a line every half minute.

    with ProgressBar("features", "images", total=7000) as bar:
        ...
        bar.update(16)

Where stderr is not a terminal, work of less than half a minute prints nothing, longer work lines
such as ``features: 2170/7000 images, 24.10 images/s, 03:21 left``.
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

LINE = "{desc}: {n_fmt}/{total_fmt}{unit}, {rate_fmt}, {remaining} left"


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
        every: dict[str, Any] = {"delay": INTERVAL, "mininterval": INTERVAL, "miniters": 1}
        lines = every | {"file": LineStream(), "bar_format": LINE, "maxinterval": 2 * INTERVAL}
        super().__init__(
            desc=printable(name),
            unit=f" {units}",
            total=total,
            initial=initial,
            leave=leave and self.is_moving,
            disable=not (shown and is_first_process() and sys.stderr is not None),
            **{} if self.is_moving else lines,
        )


@contextmanager
def stage(name: str, shown: bool = True) -> Iterator[None]:
    """Work of unknown length; if it takes long, one line says that it is still in progress."""
    timer = threading.Timer(INTERVAL, say, [f"{printable(name)}: still in progress"])
    timer.daemon = True
    if shown and is_first_process():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say(*lines: str, file: Any = None) -> None:
    """Print lines to a text file, by default stderr, safely for terminals and bars."""
    safe = (printable(*line.split("\t")) for line in lines)
    tqdm.write("\n".join(safe), file=file or sys.stderr)


def is_first_process() -> bool:
    """Whether this process reports progress, of all that a launcher has started."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)
