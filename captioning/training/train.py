"""`captioning train`: from a YAML file to a trained checkpoint."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import wandb
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from captioning.data.module import CaptionData
from captioning.errors import InputError
from captioning.files import written_whole
from captioning.training.callbacks import Checkpoints, SeededEpochs
from captioning.training.module import CaptioningModule
from captioning.training.pictures import ValidationTable


class TrainCLI(LightningCLI):
    """The parts of a training, built from YAML files and options."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link what data decide to the model, and add the options of this command."""
        parser.link_arguments("data.vocabulary", "model.vocabulary", apply_on="instantiate")
        parser.link_arguments("data.preprocessing", "model.preprocessing", apply_on="instantiate")
        parser.link_arguments("seed_everything", "data.seed")
        parser.add_lightning_class_args(Checkpoints, "checkpoints")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_lightning_class_args(ValidationTable, "validation_table")
        parser.set_defaults(
            {
                "early_stopping.monitor": "val/BLEU-4",
                "early_stopping.mode": "max",
                "early_stopping.patience": 5,
            }
        )
        parser.add_argument(
            "--resume",
            action="store_true",
            help="go on from last.ckpt in trainer.default_root_dir, if there is one",
        )
        parser.add_argument(
            "--overwrite",
            action="store_true",
            help="start anew where trainer.default_root_dir holds an earlier run",
        )

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.config.trainer.default_root_dir or "runs/captioning")

    def before_instantiate_classes(self) -> None:
        """Refuse to write over an earlier run before anything slow begins."""
        holds_run = (self.folder / "last.ckpt").exists()
        if holds_run and not (self.config.resume or self.config.overwrite):
            raise InputError(
                f"{self.folder}: holds an earlier run; go on with --resume, start anew with "
                "--overwrite, or give another --trainer.default_root_dir"
            )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer, with its loggers and its folder where the configuration names none."""
        kwargs["default_root_dir"] = str(self.folder)
        if self.config_init.trainer.logger is None and not self.config.trainer.fast_dev_run:
            kwargs["logger"] = loggers(self.folder)
        kwargs["callbacks"] = [
            *(self.config_init.trainer.callbacks or []),
            SeededEpochs(self.config.data.seed),
            LearningRateMonitor(logging_interval="step"),
        ]
        return super().instantiate_trainer(**kwargs)


def loggers(folder: Path) -> list[Logger]:
    """CSV, and W&B: online for those who have logged in, offline for others.

    The environment variable WANDB_MODE (online, offline, disabled) has the last word.
    """
    mode = os.environ.get("WANDB_MODE") or ("online" if wandb.api.api_key else "offline")
    csv = CSVLogger(folder, name="", version="csv")
    if mode == "disabled":
        return [csv]
    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(silent=True) if mode == "offline" else None
    online = WandbLogger(
        project="captioning",
        name=folder.name,
        save_dir=folder,
        offline=mode == "offline",
        settings=settings,
    )
    return [csv, online]


def train(arguments: list[str]) -> Path:
    """Train as the options say.

    Args:
        arguments: LightningCLI's options, such as ``--config configs/shapes.yaml``.

    Returns:
        The best checkpoint.

    Raises:
        InputError: a bad data set or photo, or a folder that holds an earlier run.
    """
    _quieten()
    cli = TrainCLI(
        CaptioningModule,
        CaptionData,
        args=arguments,
        run=False,
        seed_everything_default=0,
        trainer_defaults={"enable_model_summary": False},
        save_config_callback=None,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={"exit_on_error": False, "prog": "captioning train"},
    )
    last = cli.folder / "last.ckpt"
    if not cli.config.trainer.fast_dev_run:
        with written_whole(cli.folder / "config.yaml") as path:
            cli.parser.save(cli.config, path, overwrite=True, multifile=False)
    cli.trainer.fit(
        cli.model,
        cli.datamodule,
        ckpt_path=last if cli.config.resume and last.exists() else None,
        weights_only=True,
    )
    return cli.folder / "best.ckpt"


def _quieten() -> None:
    """Leave out the advice of libraries that does not fit what we do."""
    for message in (
        ".*does not have many workers.*",  # more would starve the training on two cores
        ".*module\\(s\\) in eval mode at the start of training.*",  # a frozen encoder should be
        ".*should not be both args and command line.*",
        ".*isinstance\\(treespec, LeafSpec\\).*",  # Lightning's own use of torch
    ):
        warnings.filterwarnings("ignore", message=message)
