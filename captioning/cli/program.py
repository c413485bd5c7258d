"""The entry point: runs a command and turns its errors into lines and exit codes."""

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext

from captioning.cli import (
    caption,
    check,
    demo,
    evaluate,
    export,
    features,
    ground,
    judge,
    score,
    serve,
    shapes,
    train,
)
from captioning.cli.options import Parser
from captioning.errors import INTERRUPTED, InputError, UsageError, as_input_error
from captioning.progress_bar import is_first_process, stage
from captioning.terminal import escape_what_cannot_be_encoded

LIGHTNING = {"train": train, "features": features}
"""Commands whose options LightningCLI parses."""

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of writing to standard output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 1 for bad input, 2 for bad options.

    Only here do errors of the input and of the operating system become a printed line.

    Args:
        arguments: the command and its options; defaults to those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if sys.stdout is None:
            raise UsageError("standard output is closed; redirect it to a file or to /dev/null")
        escape_what_cannot_be_encoded()
        # Pillow's, of odd metadata in photos that it reads all the same.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        return _run(given)
    except InputError as error:
        _print_error(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        _print_error(str(interrupt) or "interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        _give_up_output()
        return 1
    except OSError as error:
        # Errors of all other files name their file.
        if error.filename is None and error.errno in UNWRITABLE:
            _give_up_output()
            _print_error(str(as_input_error(error, "standard output", "cannot be written")))
        else:
            _print_error(str(as_input_error(error)))
        return 1


def _run(arguments: list[str]) -> int:
    try:
        if arguments and arguments[0] in LIGHTNING:
            with stage(arguments[0], is_first_process()):
                code = LIGHTNING[arguments[0]].run(arguments[1:])
        else:
            options = _parser().parse_args(arguments)
            # A server runs until it is stopped.
            ends = options.run not in (serve.run, demo.run)
            with stage(arguments[0], is_first_process()) if ends else nullcontext():
                code = options.run(options)
    except SystemExit:  # raised by --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()  # raises here if the disk is full or the reader has gone
    return code


def _give_up_output() -> None:
    """Discard the rest of the output, which Python would still flush when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_error(line: str) -> None:
    """Print a line to stderr, if it can be written to."""
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
    for command in (
        *(demo, caption, serve, train, evaluate, score, judge),
        *(ground, features, check, shapes, export),
    ):
        command.add(commands)
    return parser
