"""`captioning features`: photos encoded for a training; it takes the options of `train`."""

from captioning.cli.train import add_options
from captioning.terminal import printable

__all__ = ["add_options", "run"]


def run(arguments: list[str]) -> int:
    """Write the features that the options describe, and print where they are."""
    from captioning.training.train_cli import features

    folder = features(arguments)
    if folder is not None:
        print(printable(folder))
    return 0
