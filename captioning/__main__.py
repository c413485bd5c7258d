"""Runs the command `captioning`, also as `python -m captioning`."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from captioning.errors import INTERRUPTED, ending_signals


def main() -> int:
    """Run the command of this process; interrupts are one line, even during imports.

    Returns:
        The exit code; after a signal, 128 and its number, as in shells: 130 for Ctrl-C, 143 for
        SIGTERM, 129 for SIGHUP, which a closed terminal sends.
    """
    interrupts: list[int] = []
    process = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:
            os._exit(128 + number)  # a worker, whose parent ends it
        interrupts.append(number)
        raise KeyboardInterrupt

    def interrupt_later(lost: "sys.UnraisableHookArgs") -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt) and interrupts:
            # Out of a finalizer nothing is raised, so the signal would be lost.
            threading.Timer(0.01, os.kill, (os.getpid(), interrupts[0])).start()
        elif not interrupts:  # else it follows from the interrupt
            hook(lost)

    # Pictures are written to files. Notebooks let their commands inherit a backend of theirs, and
    # where that is not installed, importing matplotlib fails.
    os.environ["MPLBACKEND"] = "agg"
    hook, sys.unraisablehook = sys.unraisablehook, interrupt_later
    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
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
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + interrupts[0] if interrupts and code == INTERRUPTED else code


def run() -> NoReturn:
    """Run the command of this process and end it, at once if it was interrupted.

    Threads of the server, and those that were at work when a second interrupt came, abort the
    process if Python ends meanwhile.
    """
    code = main()
    if code <= 128 and sys.argv[1:2] not in (["demo"], ["serve"]):
        sys.exit(code)
    for number in ending_signals():
        signal.signal(number, signal.SIG_DFL)
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
