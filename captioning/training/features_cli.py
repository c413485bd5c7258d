"""`captioning features`: the features that a training would begin by computing."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from captioning.errors import UsageError
from captioning.progress_bar import stage
from captioning.training.configured_training import TrainCLI
from captioning.training.quiet import quiet
from captioning.training.train_cli import as_input_errors

WHERE = ("accelerator", "devices", "num_nodes", "strategy", "plugins")
"""The trainer's options that say on what, and in how many processes."""


class FeaturesCLI(TrainCLI):
    """The parts of a training, of which only data and encoder are put to use."""

    command = "captioning features"

    def before_instantiate_classes(self) -> None:
        """Refuse a configuration that names no place for features.

        There is no run, so the folder of one is neither made nor looked at.
        """
        if not self.config.data.features:
            raise UsageError(
                "data.features names no folder for the features; give --data.features DIR"
            )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """A trainer that starts the processes and leaves no files."""
        return pl.Trainer(
            **{name: self.config_init.trainer[name] for name in WHERE},
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )


def features(arguments: list[str]) -> Path | None:
    """Write the features of a training, or find that all of them are there.

    Args:
        arguments: the options of `captioning.training.train_cli.train`.

    Returns:
        Their folder; none in all processes but the first.

    Raises:
        InputError: options, data or a photo are not as they should be, the whole encoder is
            trained, or the folder holds something else.
        KeyboardInterrupt: with a message that says how to go on.
    """
    with quiet(), as_input_errors():
        cli = FeaturesCLI(arguments)
        try:
            # Lightning sets the data up in every process, which is all that is wanted.
            with stage("features", cli.tells_progress):
                cli.trainer.validate(cli.model, datamodule=cli.datamodule, verbose=False)
        except SystemExit as exit:
            if not isinstance(exit.__context__, KeyboardInterrupt):
                raise
            raise KeyboardInterrupt("interrupted; go on by the same command") from None
        return Path(cli.config.data.features) if cli.trainer.is_global_zero else None
