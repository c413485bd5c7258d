"""`captioning finetune`: a captioner of one's own photos, from the model that comes with it."""

import argparse
import shlex
from pathlib import Path

from captioning.cli.options import add_data, add_imports, add_number
from captioning.numbers import PositiveCount, Seed, ShareBelowOne, option
from captioning.shelf import DEFAULT
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("data", metavar="FOLDER", help="captioned photos, in any layout of `check`")
    parser.add_argument(
        "--model",
        default=DEFAULT,
        help="the model to start from: a file, or the name of one that comes with the package "
        f"(default: {DEFAULT})",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of the training (default: runs/ and FOLDER's name)"
    )
    add_number(
        parser, "--epochs", PositiveCount, "passes over the photos (default: by their number)"
    )
    add_number(parser, "--seed", Seed, "of the training", 0)
    parser.add_argument(
        "--val-share",
        type=option(ShareBelowOne),
        metavar="P",
        help="share of the photos to validate on, where FOLDER names none (default: a "
        "quarter of fewer than 100 photos, else a tenth)",
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out faulty photos and rows, naming them"
    )
    parser.add_argument(
        "--tokenizer",
        choices=("ptb", "characters", "japanese", "chinese", "thai"),
        help="what splits captions into words (default: as for the model); for scripts without "
        "spaces, characters or the words of a language (extras ja, zh and th)",
    )
    add_data(parser)
    add_imports(parser)


def run(options: argparse.Namespace) -> int:
    """Train, and print the model and the command that captions with it."""
    from captioning.training.finetune import finetune

    model = finetune(
        options.data,
        options.model,
        options.out,
        options.epochs,
        options.seed,
        options.skip_bad,
        options.images,
        options.caption_column,
        options.val_share,
        options.tokenizer,
    )
    print(printable(model))
    print(printable(f"captioning caption PHOTOS --model {shlex.quote(str(model))}"))
    print(printable(f"how it learnt: {Path(model).with_name('validation.html')}"))
    return 0
