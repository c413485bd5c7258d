"""`captioning features`: photos encoded for a training; it takes the options of `train`."""

from captioning.cli.options import Commands
from captioning.terminal import printable


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "features",
        help="encode the photos of a training: captioning features --config configs/flickr8k.yaml",
    )
    parser.set_defaults(run=lambda options: run([]))


def run(arguments: list[str]) -> int:
    """Write the features that the options describe, and print where they are."""
    from captioning.training.train_cli import features

    folder = features(arguments)
    if folder is not None:
        print(printable(folder))
    return 0
