"""The parser, and options that commands share whether or not they load a model."""

import argparse
from typing import Any, Protocol, runtime_checkable

from captioning.data.images import MEGAPIXELS, MOST_MEGAPIXELS, PhotoMegapixels, pixels_of
from captioning.files import write_json
from captioning.numbers import PositiveCount, option
from captioning.terminal import printable_json
from captioning.user_modules import IMPORT


@runtime_checkable
class Printable(Protocol):
    """A report that can be printed, such as `captioning.evaluation.report.Report`."""

    def as_json(self) -> dict[str, object]:
        """Plain values."""

    def table(self) -> str:
        """Lines for a terminal."""


MAPS = "attention, evidence, attention-evidence, gradient, grad-cam, occlusion"
"""For help texts: the names in `captioning.maps`, which takes seconds to import."""


def add_number(
    parser: argparse._ActionsContainer,
    flag: str,
    kind: Any,
    meaning: str,
    default: int | None = None,
    metavar: str = "N",
) -> None:
    """Add an option that takes a number of this type and range, such as `BeamWidth`."""
    shown = "" if default is None else f" (default: {default})"
    parser.add_argument(
        flag, type=option(kind), default=default, metavar=metavar, help=meaning + shown
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits the number of images."""
    add_number(parser, "--limit", PositiveCount, "use only the first N images")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a data set is read where its layout leaves doubt."""
    parser.add_argument(
        "--images",
        metavar="DIR",
        help="the folder of the data set's photos (default: the usual folders)",
    )
    parser.add_argument(
        "--caption-column",
        metavar="NAME",
        help="the column of the captions, if the data set is a table and its columns leave doubt",
    )


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
        help="a module of yours to import first, with classes, maps or metrics; may be given again",
    )


def add_maps(
    parser: argparse.ArgumentParser, what: str, default: str = "the model's default map"
) -> None:
    """Add the option that chooses maps of a word.

    Args:
        parser: of a command.
        what: the command does with them.
        default: in words.
    """
    parser.add_argument(
        "--map",
        dest="maps",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{what} (default: {default}; may be given again): {MAPS}; of a model with several "
        "heads also a head, such as 'head 3' or 'layer 2 head 3', or heads for all of them",
    )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option that writes a report."""
    parser.add_argument(
        "--json", metavar="FILE", help=f"write {what}; - prints it in place of the table"
    )


def show_report(report: Printable, path: str | None) -> None:
    """Print the table of a report, and write its JSON as the option of `add_json` says.

    Raises:
        InputError: the file cannot be written.
    """
    if path == "-":
        print(printable_json(report.as_json()))
        return
    if path is not None:
        write_json(path, report.as_json())
    print(report.table())
