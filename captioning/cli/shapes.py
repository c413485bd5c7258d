"""`captioning shapes`: draws the data set of simple scenes."""

import argparse
import os

from captioning.numbers import ProcessCount, ScenePixels, Scenes, Seed, option
from captioning.terminal import printable

EACH = 1000
"""Scenes that justify another process."""

MOST = 64
"""The most processes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("directory", metavar="DIR", help="where to draw it")
    parser.add_argument("--train", type=option(Scenes), default=6000, help="scenes to train on")
    parser.add_argument("--val", type=option(Scenes), default=500, help="scenes to validate on")
    parser.add_argument("--test", type=option(Scenes), default=500, help="scenes held out")
    parser.add_argument("--pixels", type=option(ScenePixels), default=128, help="side of a picture")
    parser.add_argument(
        "--hard",
        action="store_true",
        help="three to five textured objects, some partly hidden, among clutter",
    )
    parser.add_argument("--seed", type=option(Seed), default=0)
    parser.add_argument(
        "--processes",
        type=option(ProcessCount),
        metavar="N",
        help="number of drawing processes (default: one for each core and each 1,000 scenes)",
    )


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
