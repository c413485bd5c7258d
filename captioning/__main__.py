"""Runs the command `captioning`, also as `python -m captioning`."""

import os
import signal
import sys
from types import FrameType

from captioning.errors import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a command with one line, which says how to continue."""


def main() -> int:
    """Run the command of this process; interrupts are one line, even during imports.

    Returns:
        The exit code; after a signal, 128 and its number, as in shells: 130 for Ctrl-C, 143 for
        SIGTERM.
    """
    interrupts: list[int] = []
    process = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and os.getpid() != process:
            os._exit(128 + number)  # a worker, whose parent ends it
        interrupts.append(number)
        raise KeyboardInterrupt

    # Pictures are written to files. Notebooks let their commands inherit a backend of theirs, and
    # where that is not installed, importing matplotlib fails.
    os.environ["MPLBACKEND"] = "agg"
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        from captioning.cli import main as run

        code = run()
    except (KeyboardInterrupt, Exception) as error:
        # Interrupted imports of compiled modules may raise anything.
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        print("captioning: interrupted", file=sys.stderr)
        code = INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + interrupts[0] if interrupts and code == INTERRUPTED else code


if __name__ == "__main__":
    sys.exit(main())
