"""Runs the command `captioning`, also as `python -m captioning`."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn


def run() -> NoReturn:
    """Run the command of this process and end it, without waiting for threads at work."""
    # Notebooks let their commands inherit a backend that may not be installed here.
    os.environ["MPLBACKEND"] = "agg"
    try:
        from captioning.commands import main

        code = main()
    except KeyboardInterrupt:  # among imports
        code = 130
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # full, or closed
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
