"""A training's checkpoints: when and how they are written."""

import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from captioning.errors import InputError
from captioning.files import written_whole
from captioning.training.callbacks import is_at_zero


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint with the best validation score, best.ckpt, in the run's folder.

    Args:
        monitor: the validation score.
        mode: ``max`` if higher is better, ``min`` if lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(filename="best", monitor=monitor, mode=mode, enable_version_counter=False)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find a misspelt score before an epoch is spent."""
        scores = sorted(trainer.callback_metrics)
        if scores and self.monitor not in scores:
            raise InputError(
                f"checkpoints.monitor: validation has no score {self.monitor!r}; "
                f"choose from {', '.join(scores)}"
            )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save, unless the training ends within an epoch, before its first validation."""
        if self.monitor in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)

    def check_monitor_top_k(self, trainer: pl.Trainer, current: Tensor | None = None) -> bool:
        """Whether to save; of epochs that all score 0, the last has learnt most."""
        if current is not None and is_at_zero(self.mode, current, self.best_model_score):
            return True
        return super().check_monitor_top_k(trainer, current)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far, even if the run's folder has been moved."""
        assert self.dirpath is not None
        moved: dict[str, Any] = {"dirpath": self.dirpath}
        best = state_dict["best_model_score"]
        path = Path(self.dirpath) / "best.ckpt"
        if not path.exists():  # no validation yet, or somebody removed it
            return
        if best is not None:
            moved |= {"best_model_path": str(path), "kth_best_model_path": str(path)}
            moved["best_k_models"] = {str(path): best}
        super().load_state_dict(state_dict | moved)


class LastCheckpoint(Checkpoint):
    """Keeps last.ckpt, from which a training resumes: after every epoch, and every few minutes.

    Lightning's own `save_last` writes only in epochs that are among the best.

    Args:
        path: the file.
        minutes: time between checkpoints within an epoch.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self.minutes = minutes
        self._saved = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._saved = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if it is time, except after the epoch's last step, when the epoch's end saves."""
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            return
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # gradients that wait for the optimizer's step would be lost
        is_due = time.monotonic() - self._saved >= 60 * self.minutes
        if trainer.strategy.broadcast(is_due):  # all processes save together
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save."""
        trainer.save_checkpoint(self.path)
        self._saved = time.monotonic()


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file beside its place, then renames it.

    On a disk that fills up, Lightning's own writer may leave half a checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint, whole or not at all."""
        with written_whole(path) as temporary:
            try:
                # With a Python file, the operating system's error is kept as the context.
                with temporary.open("wb") as file:
                    torch.save(checkpoint, file)
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
