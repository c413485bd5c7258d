"""`captioning check`: the faults of a data set, before training."""

import argparse

from captioning.cli.options import add_data, add_imports, add_photo_limit


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("data", metavar="DIR", help="the data set")
    add_data(parser)
    add_imports(parser)
    add_photo_limit(parser)


def run(options: argparse.Namespace) -> int:
    """Print the problems; returns 1 if there are any."""
    from captioning.data.folder_check import check
    from captioning.data.readers import reader_for

    reader = reader_for(options.data, True, options.images, options.caption_column)
    result = check(reader, max_pixels=options.max_pixels)
    print(result)
    return 0 if result.ok else 1
