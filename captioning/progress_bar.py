"""Shows progress on stderr: tqdm's bars on a terminal, elsewhere a line every half minute.

    with ProgressBar("features", "images", total=7000) as bar:
        ...
        bar.update(16)

Where stderr is not a terminal, work of less than half a minute prints nothing; longer work prints
lines such as ``features: 2170/7000 images, 24.10 images/s, 03:21 left``.
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
    """A stream that prints each state of a bar as a line."""

    def write(self, text: str) -> None:
        if line := text.strip("\r\n "):
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        return


class ProgressBar(tqdm):
    """A progress bar; only the first of several processes shows it.

    Args:
        name: of the work.
        units: name of the units of work, such as ``images``.
        total: number of units, if known.
        initial: number of units done before; they do not count for the rate.
        leave: keep the bar on the terminal at the end.
        visible: whether to print anything.
    """

    def __init__(
        self,
        name: str,
        units: str,
        total: int | None = None,
        *,
        initial: int = 0,
        leave: bool = False,
        visible: bool = True,
    ) -> None:
        self.is_moving = visible and sys.stderr is not None and sys.stderr.isatty()
        line_options: dict[str, Any] = {
            "delay": INTERVAL,
            "mininterval": INTERVAL,
            "maxinterval": 2 * INTERVAL,
            "miniters": 1,
            "file": LineStream(),
            "bar_format": LINE,
        }
        super().__init__(
            desc=printable(name),
            unit=f" {units}",
            total=total,
            initial=initial,
            leave=leave and self.is_moving,
            disable=not (visible and is_first_process() and sys.stderr is not None),
            **{} if self.is_moving else line_options,
        )


@contextmanager
def stage(name: str, visible: bool = True) -> Iterator[None]:
    """Print a line if the block takes long, a stage of work of unknown length."""
    timer = threading.Timer(INTERVAL, say, [f"{printable(name)}: still in progress"])
    timer.daemon = True
    if visible and is_first_process():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say(*lines: str, file: Any = None) -> None:
    """Print lines to a text file, by default stderr, without disturbing terminals and bars."""
    printable_lines = (printable(*line.split("\t")) for line in lines)
    tqdm.write("\n".join(printable_lines), file=file or sys.stderr)


def is_first_process() -> bool:
    """Whether this is the process that reports progress, among those of a launcher."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)
