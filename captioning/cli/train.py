"""`captioning train`: a model from a configuration; its options are LightningCLI's."""

from captioning.terminal import printable


def run(arguments: list[str]) -> int:
    """Train as the options say, and print where the best checkpoint is."""
    from captioning.training.train_cli import train

    best = train(arguments)
    if best is not None:
        print(printable(best))
    return 0
