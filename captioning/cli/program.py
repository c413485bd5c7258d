"""The entry point: runs a command and turns its errors into lines and exit codes."""

import argparse
import ctypes
import errno
import logging
import os
import platform
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from typing import Any, NoReturn

from captioning import __version__
from captioning.errors import INTERRUPTED, InputError, UsageError, as_input_error
from captioning.progress_bar import is_first_process, say, stage
from captioning.terminal import escape_what_cannot_be_encoded, printable
from captioning.user_modules import import_modules

COMMANDS = {
    "demo": "the web page at once: the model that comes with the package, and photos to click",
    "caption": "caption photos with a trained model",
    "serve": "a web page and a JSON API for captions",
    "finetune": "train on one's own photos, from the model that comes with the package",
    "train": "train a model: captioning train --config shapes",
    "evaluate": "score a model on a split",
    "calibrate": "make a model's probabilities mean what they say",
    "score": "score captions from files, of any model",
    "compare": "test whether one system's captions are better than another's",
    "ground": "test maps of words against the boxes and masks of objects",
    "features": "encode the photos of a training: captioning features --config flickr8k",
    "check": "look for faults in a data set before training",
    "shapes": "draw the data set of simple scenes",
    "models": "list the models that come with the package",
    "export": "write a model to share: a folder with a model card, a file, or ONNX",
    "push": "upload a model to the Hugging Face Hub",
}
"""What each command does. Its options and work are in the module of its name."""

LIGHTNING = ("train", "features")
"""Commands whose options LightningCLI parses."""

ENDLESS = ("demo", "serve")
"""Commands that run until they are stopped."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

LARGEST_KEPT = 2**25
"""Bytes of the largest freed blocks that are kept; glibc's maximum."""

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
        keep_freed_memory()
        # Pillow's, of odd metadata in photos that it reads all the same.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        with _log_on_stderr():
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


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if its allocator is glibc's.

    A training step frees and allocates blocks of some megabytes. By default glibc returns them to
    the system, which clears every page again: up to 5 % of a step on a CPU.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        glibc.mallopt(MMAP_THRESHOLD, LARGEST_KEPT)


class Parser(argparse.ArgumentParser):
    """A parser that raises errors of one line instead of ending the process."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, but name an unknown option first; argparse would name a missing one before it.

        Where an argument may be missing, flags are read first: before Python 3.13, argparse does
        not take the arguments on both sides of a flag then.
        """
        is_of_command = self._subparsers is None
        for argument in takewhile(lambda each: each != "--", args or () if is_of_command else ()):
            flag = argument.partition("=")[0]
            if not _is_option(flag) or any(
                option.startswith(flag) for option in self._option_string_actions
            ):
                continue
            self.error(f"unknown option {flag}{_nearest(flag, self._option_string_actions)}")
        may_miss = any(each.nargs == "?" and not each.option_strings for each in self._actions)
        if is_of_command and args and may_miss:
            end = args.index("--") if "--" in args else len(args)
            options = self._option_string_actions
            flags = {name for name, action in options.items() if action.nargs == 0}
            args = [*sorted(args[:end], key=lambda each: each not in flags), *args[end:]]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise the error that argparse would print before ending the process."""
        raise UsageError(f"{message}; see {self.prog} --help")


class PrintCompletion(argparse.Action):
    """Prints a script of completion for a shell."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        """Print the script for all commands, and end."""
        try:
            import shtab
        except ImportError:
            raise UsageError(
                "completion needs the extra completion; run pip install 'captioning[completion]'"
            ) from None
        paths = {
            "DIR": shtab.DIRECTORY,
            **dict.fromkeys(("FILE", "MODEL", "PHOTO", "TARGET"), shtab.FILE),
        }
        whole = parser_for(*COMMANDS)
        commands: Any = next(each for each in whole._actions if each.dest == "command")
        for command in commands.choices.values():
            for action in command._actions:
                if action.metavar in paths:
                    action.complete = paths[action.metavar]
        print(shtab.complete(whole, given[1]))
        parser.exit()


def parser_for(*names: str) -> Parser:
    """The parser of the command line, with the options of these commands only."""
    parser = Parser(
        prog="captioning",
        description="Says what is in a photo, and shows where it looked for every word.",
    )
    parser.add_argument("--version", action="version", version=f"captioning {__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print a script that completes commands and options in this shell",
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for command, summary in COMMANDS.items():
        options = commands.add_parser(command, help=summary)
        if command in names:
            import_module(f"captioning.cli.{command}").add_options(options)
    return parser


def _is_option(text: str) -> bool:
    """Whether argparse takes a text for an option: neither a dash alone nor a negative number."""
    return len(text) > 1 and text[0] == "-" and " " not in text and not text[1:2].isdecimal()


def _nearest(given: str, known: Iterable[str]) -> str:
    near = get_close_matches(given, known, 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _run(arguments: list[str]) -> int:
    name, *options = arguments or [""]
    if name and name[0] != "-" and name not in COMMANDS:
        raise UsageError(f"unknown command {name}{_nearest(name, COMMANDS)}; see captioning --help")
    try:
        parsed: Any = [{"--help-all": "--help"}.get(option, option) for option in options]
        if name not in LIGHTNING:
            parsed = parser_for(name).parse_args(arguments)
        elif {"-h", "--help"} & set(options):
            parser_for(name).parse_args([name, "--help"])
        import_modules(getattr(parsed, "modules", ()))
        run = import_module(f"captioning.cli.{name}").run
        ends = name not in ENDLESS
        with stage(name, is_first_process()) if ends else nullcontext():
            code: int = run(parsed)
    except SystemExit:  # raised by --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()  # raises here if the disk is full or the reader has gone
    return code


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if is_first_process():
            say(f"captioning: {printable(record.getMessage())}")


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Print what the package logs, such as classes without a kernel, while the block lasts."""
    log, lines = logging.getLogger("captioning"), _Lines()
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(lines)
        log.setLevel(level)


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
