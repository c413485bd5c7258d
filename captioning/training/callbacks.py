"""What happens around the steps of a training."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from captioning.errors import InputError

BEST, LAST = "best", "last"


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint of the best validation, best.ckpt, in the run's folder.

    Args:
        monitor: the validation score that decides.
        mode: ``max`` where higher is better, ``min`` where lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(filename=BEST, monitor=monitor, mode=mode, enable_version_counter=False)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Place the file."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find a misspelt score before an epoch is spent.

        Raises:
            InputError: validation gives no such score.
        """
        scores = sorted(trainer.callback_metrics)
        if scores and self.monitor not in scores:
            raise InputError(
                f"checkpoints.monitor: validation gives no {self.monitor!r}; "
                f"choose from {', '.join(scores)}"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember the best score so far, also where the run's folder has been moved."""
        assert self.dirpath is not None
        path = str(Path(self.dirpath) / f"{BEST}{self.FILE_EXTENSION}")
        moved = {
            "dirpath": self.dirpath,
            "best_model_path": path,
            "kth_best_model_path": path,
            "best_k_models": {path: state_dict["best_model_score"]},
        }
        super().load_state_dict(state_dict | moved)


class LastCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint of the last finished epoch, last.ckpt, from which a training resumes.

    Lightning's own `save_last` writes only in epochs that are among the best.
    """

    def __init__(self) -> None:
        super().__init__(filename=LAST, enable_version_counter=False, save_on_train_epoch_end=True)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Place the file."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """There is nothing to remember: the next epoch replaces the file wherever it lies."""


class SeededEpochs(pl.Callback):
    """Seeds every epoch by its number, so that a resumed training repeats an uninterrupted one.

    Args:
        seed: the training's seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Seed dropout and whatever else draws from torch's generator, before the first batch.

        At the start of the epoch it would be too early: a data loader that is begun anew, as in a
        resumed training, draws from the same generator.
        """
        if batch_idx == 0:
            ranks_and_epochs = trainer.current_epoch * trainer.world_size + trainer.global_rank
            torch.manual_seed(self.seed * 1_000_003 + ranks_and_epochs)
