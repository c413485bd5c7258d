"""From the arguments of the process to a command and its exit code."""

import errno
import os
import sys
from collections.abc import Sequence

from captioning.cli import caption, check, evaluate, features, ground, score, serve, shapes, train
from captioning.cli.options import Parser
from captioning.errors import INTERRUPTED, InputError, UsageError, as_input_error
from captioning.terminal import escape_what_cannot_be_encoded

LIGHTNING = {"train": train, "features": features}
"""Commands whose options are LightningCLI's."""

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Why what is printed cannot be written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 1 for bad input, 2 for bad options.

    This is the one place where errors of the input and of the operating system become a line.

    Args:
        arguments: the command and its options; those of the process if none.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if sys.stdout is None:
            raise UsageError("standard output is closed; redirect it to a file or to /dev/null")
        escape_what_cannot_be_encoded()
        return _run(given)
    except InputError as error:
        _tell(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        _tell(str(interrupt) or "interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output, such as head, has enough
        _give_up_output()
        return 1
    except OSError as error:
        # Whatever else is written names its file.
        if error.filename is None and error.errno in UNWRITABLE:
            _give_up_output()
            _tell(str(as_input_error(error, "standard output", "cannot be written")))
        else:
            _tell(str(as_input_error(error)))
        return 1


def _run(arguments: list[str]) -> int:
    try:
        if arguments and arguments[0] in LIGHTNING:
            code = LIGHTNING[arguments[0]].run(arguments[1:])
        else:
            options = _parser().parse_args(arguments)
            code = options.run(options)
    except SystemExit:  # --help ends so
        sys.stdout.flush()
        raise
    sys.stdout.flush()  # here, where a full disk or a reader that has gone is known
    return code


def _give_up_output() -> None:
    """Let what is still to be printed vanish, as Python prints it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _tell(line: str) -> None:
    """Print a line to stderr, where there is one that takes it."""
    try:
        if sys.stderr is not None:
            print(f"captioning: {line}", file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _parser() -> Parser:
    parser = Parser(
        prog="captioning",
        description="Says what is in a photo, and shows where it looked for every word.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (caption, evaluate, score, ground, train, features, check, shapes, serve):
        command.add(commands)
    return parser
