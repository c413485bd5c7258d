"""Runs the command `captioning`, also as `python -m captioning`."""

import signal
import sys
from types import FrameType

from captioning.errors import INTERRUPTED


def main() -> int:
    """Run the command of this process; interrupts are one line, even during imports."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        from captioning.cli import main as run

        return run()
    except (KeyboardInterrupt, Exception) as error:
        # Interrupted imports of compiled modules may raise anything.
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        print("captioning: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
