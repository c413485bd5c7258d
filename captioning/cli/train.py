"""`captioning train`: a model from a configuration; its options are LightningCLI's."""

import argparse

from captioning.cli.options import add_imports
from captioning.shelf import config_names
from captioning.terminal import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that a training most often needs, for its help and for completion."""
    parser.usage = f"{parser.prog} --config NAME [--KEY VALUE ...]"
    names = ", ".join(config_names())
    add = parser.add_argument
    add(
        "--config",
        metavar="FILE",
        help=f"a YAML file, or a configuration that comes with the package: {names}; may be given "
        "again, and changes what was given before",
    )
    add("--data.reader.init_args.root", metavar="DIR", help="folder of the data set")
    add("--data.batch_size", metavar="N", help="images at a time")
    add("--data.workers", metavar="N", help="processes that read photos")
    add("--data.features", metavar="DIR", help="keep the features of frozen stages in this folder")
    add("--model.initial", metavar="FILE", help="start with the parameters of this model")
    add("--model.learning_rate", metavar="RATE", help="of the decoder")
    add("--trainer.default_root_dir", metavar="DIR", help="folder of the run, with best.ckpt")
    add("--trainer.max_epochs", metavar="N", help="the most epochs; early stopping may end before")
    add("--trainer.devices", metavar="N", help="GPUs or processes")
    add("--trainer.precision", metavar="PRECISION", help="such as 32-true or bf16-mixed")
    add("--seed_everything", metavar="SEED", help="of all random numbers (default: 0)")
    add("--resume", action="store_true", help="continue from last.ckpt in the run's folder")
    add("--overwrite", action="store_true", help="start again in the folder of an earlier run")
    add("--kernels", choices=("on", "off"), help="off: the plain model, slower (default: on)")
    add_imports(parser)
    add("--print_config", action="store_true", help="print the configuration with all defaults")
    add("--help-all", action="store_true", help="show every key of a configuration as an option")


def run(arguments: list[str]) -> int:
    """Train as the options say, and print where the best checkpoint is."""
    from captioning.training.train_cli import train

    best = train(arguments)
    if best is not None:
        print(printable(best))
    return 0
