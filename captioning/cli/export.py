"""`captioning export`: a model without the state of its training, to share."""

import argparse

from captioning.cli.options import add_imports
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--model", required=True, metavar="MODEL", help="a trained model")
    parser.add_argument("file", metavar="FILE", help="where to write it (safetensors)")
    parser.add_argument(
        "--half",
        action="store_true",
        help="half precision: half the size, nearly the same captions",
    )
    add_imports(parser)


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    from captioning.captioner import export

    export(options.model, options.file, options.half)
    print(printable(options.file))
    return 0
