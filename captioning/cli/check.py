"""`captioning check`: the faults of a data set, before training."""

import argparse

from captioning.cli.options import Commands, add_photo_limit


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("check", help="look for faults in a data set before training")
    parser.add_argument("data", metavar="DIR", help="the data set")
    add_photo_limit(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the problems; returns 1 if there are any."""
    from captioning.data.folder_check import check
    from captioning.data.readers import reader_for

    result = check(reader_for(options.data), max_pixels=options.max_pixels)
    print(result)
    return 0 if result.ok else 1
