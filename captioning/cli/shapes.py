"""`captioning shapes`: draws the data set of simple scenes."""

import argparse
import os

from captioning.cli.options import add_number
from captioning.numbers import ProcessCount, ScenePixels, Scenes, Seed
from captioning.terminal import printable

EACH = 1000
"""Scenes that justify another process."""

MOST = 64
"""The most processes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("directory", metavar="DIR", help="where to draw it")
    add_number(parser, "--train", Scenes, "scenes to train on", 6000)
    add_number(parser, "--val", Scenes, "scenes to validate on", 500)
    add_number(parser, "--test", Scenes, "scenes held out", 500)
    add_number(parser, "--pixels", ScenePixels, "side of a picture", 128)
    parser.add_argument(
        "--hard",
        action="store_true",
        help="three to five textured objects, some partly hidden, among clutter",
    )
    add_number(parser, "--seed", Seed, "of what is drawn", 0)
    each = "number of drawing processes (default: one for each core and each 1,000 scenes)"
    add_number(parser, "--processes", ProcessCount, each)


def run(options: argparse.Namespace) -> int:
    """Draw the scenes."""
    from captioning.shapes import write_shapes

    scenes = options.train + options.val + options.test
    worthwhile = max(1, min(os.cpu_count() or 1, scenes // EACH, MOST))
    write_shapes(
        options.directory,
        train=options.train,
        val=options.val,
        test=options.test,
        pixels=options.pixels,
        seed=options.seed,
        processes=options.processes or worthwhile,
        hard=options.hard,
    )
    print(printable(options.directory))
    return 0
