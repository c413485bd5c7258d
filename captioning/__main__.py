"""`python -m captioning` is `captioning`: the command, from its first import to its exit code."""

import sys


def main() -> int:
    """Run the command of this process; an interrupt is one line from the very beginning."""
    try:
        from captioning.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("captioning: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
