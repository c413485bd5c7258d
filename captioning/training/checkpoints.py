"""A training's checkpoints: when they are written, how, and whether one can be resumed from."""

import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from captioning.errors import InputError
from captioning.files import written_whole

BEST, LAST = "best", "last"


class _InRunFolder(ModelCheckpoint):
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write to the run's folder."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)


class BestCheckpoint(_InRunFolder):
    """Keeps the checkpoint with the best validation score, best.ckpt, in the run's folder.

    Args:
        monitor: the validation score.
        mode: ``max`` if higher is better, ``min`` if lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(filename=BEST, monitor=monitor, mode=mode, enable_version_counter=False)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find a misspelt score before an epoch is spent.

        Raises:
            InputError: validation has no such score.
        """
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far, even if the run's folder has been moved."""
        assert self.dirpath is not None
        moved: dict[str, Any] = {"dirpath": self.dirpath}
        best = state_dict["best_model_score"]
        if best is not None:  # None before the first validation
            path = str(Path(self.dirpath) / f"{BEST}{self.FILE_EXTENSION}")
            moved |= {
                "best_model_path": path,
                "kth_best_model_path": path,
                "best_k_models": {path: best},
            }
        super().load_state_dict(state_dict | moved)


class LastCheckpoint(_InRunFolder):
    """Keeps last.ckpt, from which a training resumes: after every epoch, or every few minutes.

    Lightning's own `save_last` writes only in epochs that are among the best.

    Args:
        minutes: how often, within epochs; by default only after epochs.
    """

    def __init__(self, minutes: float | None = None) -> None:
        super().__init__(
            filename=LAST,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
            train_time_interval=None if minutes is None else timedelta(minutes=minutes),
        )
        self.minutes = minutes

    @property
    def state_key(self) -> str:
        """Independent of the interval, which a resumed training may change."""
        return f"{type(self).__name__} {'of epochs' if self.minutes is None else 'by the clock'}"

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save within an epoch, except after its last step, when the epoch's end saves."""
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing: the next checkpoint replaces the file wherever it is."""


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file beside its place, then renames it.

    Lightning's own writer copies from the system's temporary folder if that is another file system:
    a disk that fills up meanwhile keeps half a checkpoint in place of the earlier one.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint, whole or not at all.

        Raises:
            InputError: the file cannot be written; an earlier one is unchanged.
        """
        with written_whole(path) as temporary:
            try:
                # With a Python file, the operating system's error is kept as the context.
                with temporary.open("wb") as file:
                    torch.save(checkpoint, file)
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise


def check_resumable(path: Path, module: pl.LightningModule) -> None:
    """Check that a checkpoint is undamaged and of this model, before Lightning restores half of it.

    Args:
        path: the checkpoint.
        module: the training's module, as its configuration builds it.

    Raises:
        InputError: it is damaged or of another model, with the remedy.
    """
    try:
        if reason := _damage(path) or _misfit(path, module):
            raise InputError(
                f"{path}: cannot be resumed from ({reason}); put an earlier copy there, give the "
                "configuration that it was trained with, or start again with --overwrite"
            )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the file") from None


def _damage(path: Path) -> str | None:
    """Compare the CRC-32 of every part of torch's zip archive."""
    if not path.is_file():
        return "not a regular file"
    try:
        with zipfile.ZipFile(path) as archive:
            return "damaged" if archive.testzip() else None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        return "damaged, or not a checkpoint"


def _misfit(path: Path, module: pl.LightningModule) -> str | None:
    """A difference between a checkpoint and the training that is to go on from it."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        found = {name: value.shape for name, value in saved["state_dict"].items()}
        [optimizer] = saved["optimizer_states"]
        trained = sum(len(group["params"]) for group in optimizer["param_groups"])
        saved["loops"]["fit_loop"], saved["callbacks"], saved["lr_schedulers"]
        moments = [value for state in optimizer["state"].values() for value in state.values()]
        if not all(isinstance(value, torch.Tensor) for value in moments):
            return "the optimizer's state holds something else than tensors"
    except Exception:  # of a dozen kinds: the file may hold anything
        return "not a checkpoint of a training"
    wanted = {name: value.shape for name, value in module.state_dict().items()}
    if different := sorted({*found.items()} ^ {*wanted.items()}):
        return f"another model: {different[0][0]} differs"
    if trained != sum(parameter.requires_grad for parameter in module.parameters()):
        return "other parts of the model were trained"
    return None
