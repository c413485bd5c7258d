"""The parser, and options that commands share whether or not they load a model."""

import argparse
from typing import NoReturn, Protocol, runtime_checkable

from captioning.data.images import MEGAPIXELS, MOST_MEGAPIXELS, PhotoMegapixels, pixels_of
from captioning.errors import UsageError
from captioning.files import write_json
from captioning.numbers import PositiveCount, option
from captioning.terminal import printable_json
from captioning.user_modules import IMPORT


@runtime_checkable
class Told(Protocol):
    """What `tell` prints: `Report`, say."""

    def as_json(self) -> dict[str, object]:
        """All of it as plain values."""

    def table(self) -> str:
        """The lines of a terminal."""


class Parser(argparse.ArgumentParser):
    """A parser that raises errors of one line instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise the error that argparse would print before ending the process."""
        raise UsageError(f"{message}; see {self.prog} --help")


Commands = argparse._SubParsersAction
"""The subparsers that commands add themselves to."""


MAPS = (
    "attention",
    "attention-norm",
    "next-attention",
    "evidence",
    "attention-evidence",
    "standout",
    "gradient",
    "relevance",
    "grad-cam",
    "fine-grad-cam",
    "occlusion",
    "occlusion-norm",
)
"""The names in `captioning.maps`, which would take seconds to import."""

HEADS = "heads"
"""The name there for the attention of every layer and head."""

positive = option(PositiveCount)
"""A number of at least one, as argparse reads it."""


def megapixels(text: str) -> int:
    """Parse a limit in megapixels; returns pixels."""
    return pixels_of(option(PhotoMegapixels)(text))


def add_photo_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits the size of photos."""
    parser.add_argument(
        "--max-megapixels",
        dest="max_pixels",
        type=megapixels,
        default=f"{MEGAPIXELS:g}",
        metavar="N",
        help="photos of more million pixels are refused unread (default: "
        f"{MEGAPIXELS:g}; at most {MOST_MEGAPIXELS:g})",
    )


def add_imports(parser: argparse.ArgumentParser) -> None:
    """Add the option that imports the user's modules."""
    parser.add_argument(
        IMPORT,
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module of yours, whose classes are needed; may be given again",
    )


def add_maps(
    parser: argparse.ArgumentParser,
    what: str,
    choices: tuple[str, ...] = MAPS,
    default: str = "the model's own",
) -> None:
    """Add the option that chooses maps of a word.

    Args:
        parser: of a command.
        what: becomes of them.
        choices: their names.
        default: what stands for no choice, in words.
    """
    parser.add_argument(
        "--map",
        dest="maps",
        action="append",
        choices=choices,
        default=[],
        metavar="NAME",
        help=f"{what} (default: {default}; may be given again): {', '.join(choices)}",
    )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option that writes a report."""
    parser.add_argument(
        "--json", metavar="FILE", help=f"write {what}; - prints it in place of the table"
    )


def tell(report: Told, path: str | None) -> None:
    """Print the table of a report, and write its JSON where `add_json` says.

    Raises:
        InputError: the file cannot be written.
    """
    if path == "-":
        print(printable_json(report.as_json()))
        return
    if path is not None:
        write_json(path, report.as_json())
    print(report.table())
