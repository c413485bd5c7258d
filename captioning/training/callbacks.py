"""What happens around the steps of a training."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint


class Checkpoints(ModelCheckpoint):
    """Keeps the best and the last checkpoint, best.ckpt and last.ckpt, in the run's folder.

    Args:
        monitor: the validation score that decides.
        mode: ``max`` where higher is better, ``min`` where lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(
            filename="best",
            monitor=monitor,
            mode=mode,
            save_last=True,
            enable_version_counter=False,
        )

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Place the files."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)


class SeededEpochs(pl.Callback):
    """Seeds every epoch by its number, so that a resumed training repeats an uninterrupted one.

    Args:
        seed: the training's seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Seed dropout and whatever else draws from torch's generator."""
        ranks_and_epochs = trainer.current_epoch * trainer.world_size + trainer.global_rank
        torch.manual_seed(self.seed * 1_000_003 + ranks_and_epochs)
