"""`captioning train`: a model from a configuration; its options are LightningCLI's."""

from captioning.cli.options import Commands
from captioning.terminal import printable


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "train", help="train a model: captioning train --config configs/shapes.yaml"
    )
    parser.set_defaults(run=lambda options: run([]))


def run(arguments: list[str]) -> int:
    """Train as the options say, and print where the best checkpoint is."""
    from captioning.training.train_cli import train

    best = train(arguments)
    if best is not None:
        print(printable(best))
    return 0
