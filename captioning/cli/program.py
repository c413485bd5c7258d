"""From the arguments of the process to a command and its exit code."""

import os
import sys
from collections.abc import Sequence

from captioning.cli import caption, check, evaluate, features, ground, score, serve, shapes, train
from captioning.cli.options import Parser
from captioning.errors import InputError, UsageError

LIGHTNING = {"train": train, "features": features}
"""Commands whose options are LightningCLI's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 1 for bad input, 2 for bad options.

    Args:
        arguments: the command and its options; those of the process if none.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in LIGHTNING:
            code = LIGHTNING[given[0]].run(given[1:])
        else:
            options = _parser().parse_args(given)
            code = options.run(options)
        sys.stdout.flush()  # here, where a reader that has gone is known
        return code
    except InputError as error:
        print(f"captioning: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        print(f"captioning: {interrupt or 'interrupted'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _one_line(error: InputError) -> str:
    """The message, also where a DataLoader has wrapped it in its worker's traceback."""
    return str(error).strip().splitlines()[-1].removeprefix("captioning.errors.InputError: ")


def _parser() -> Parser:
    parser = Parser(
        prog="captioning",
        description="Says what is in a photo, and shows where it looked for every word.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (caption, evaluate, score, ground, train, features, check, shapes, serve):
        command.add(commands)
    return parser
