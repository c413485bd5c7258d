"""Runs the command `captioning`, also as `python -m captioning`."""

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from captioning.commands import main


def run() -> NoReturn:
    """Run the command, then end the process without waiting for busy threads.

    SIGTERM and SIGHUP (of a closed terminal) interrupt it as Ctrl-C does; the exit code is 128 plus
    the number of the signal, as in shells.
    """
    # Notebooks let their commands inherit a backend that may not be installed here.
    os.environ["MPLBACKEND"] = "agg"
    process, signals = os.getpid(), [int(signal.SIGINT)]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:
            os._exit(128 + number)  # a worker process
        signals.append(number)
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, interrupt)
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # full, or closed
            stream.flush()
    os._exit(128 + signals[-1] if code == 130 else code)


if __name__ == "__main__":
    run()
