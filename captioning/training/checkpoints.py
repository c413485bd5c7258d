"""A training's checkpoints: when they are written, how, and whether one can be resumed from."""

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
from captioning.integrity import check_archive, check_tensors
from captioning.training.callbacks import StopEarly, is_at_zero


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


def check_resumable(path: Path, module: pl.LightningModule, trainer: pl.Trainer) -> dict[str, Any]:
    """The content of a checkpoint that a training can resume from.

    Lightning itself may restore half of another one.

    Raises:
        InputError: it is damaged, or of another model or another training.
    """
    try:
        check_archive(path)
        return _checked_training(path, module, trainer)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ").partition("; ")[0]
        raise not_resumable(path, reason) from None


def not_resumable(path: Path, reason: str) -> InputError:
    """The error of a checkpoint that no training can go on from."""
    return InputError(
        f"{path}: cannot be resumed from ({reason}); put an earlier copy there, give the "
        "configuration that it was trained with, or start again with --overwrite"
    )


def ended(saved: dict[str, Any], trainer: pl.Trainer) -> str | None:
    """Why nothing is left of a checkpoint's training, and what to change; None if it goes on."""
    epochs, done = _progress(saved)
    steps, last_epoch = trainer.max_steps, trainer.max_epochs
    if last_epoch is not None and 0 <= last_epoch <= epochs:
        return (
            f"ended after epoch {epochs}; to continue, raise trainer.max_epochs, now {last_epoch}"
        )
    if 0 <= steps <= done:
        return f"ended after step {steps}; to continue, raise trainer.max_steps"
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        state = saved["callbacks"].get(callback.state_key, {})
        has_stopped = isinstance(callback, StopEarly) and state.get("stopping_reason_message")
        if has_stopped and state["wait_count"] >= callback.patience:
            return (
                f"stopped early after epoch {epochs}; to continue, raise early_stopping.patience, "
                f"now {callback.patience}"
            )
    return None


def _progress(saved: dict[str, Any]) -> tuple[int, int]:
    """The numbers of epochs and steps of a checkpoint's training."""
    epochs = saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    return epochs + 0, saved["global_step"] + 0


def _checked_training(
    path: Path, module: pl.LightningModule, trainer: pl.Trainer
) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        parameters = saved["state_dict"]
        [optimizer] = saved["optimizer_states"]
        trained = sum(len(group["params"]) for group in optimizer["param_groups"])
        states = [(saved["loops"]["fit_loop"], trainer.fit_loop.state_dict())]
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            states.append((saved["callbacks"].get(callback.state_key, {}), callback.state_dict()))
        saved["lr_schedulers"], saved["pytorch-lightning_version"].split
        moments = [value for state in optimizer["state"].values() for value in state.values()]
    except Exception:  # of a dozen kinds: the file may hold anything
        raise InputError("not a checkpoint of a training") from None
    if not all(isinstance(value, torch.Tensor) for value in moments):
        raise InputError("the optimizer's state holds something else than tensors")
    if not all(_of_one_type(found, wanted) for found, wanted in states):
        raise InputError("the state of its loops or callbacks has values of other types")
    try:
        _progress(saved)
    except (KeyError, TypeError):
        raise InputError("it does not say how far the training came") from None
    check_tensors(path, parameters, module.state_dict())
    if trained != sum(parameter.requires_grad for parameter in module.parameters()):
        raise InputError("other parts of the model were trained")
    return saved


def _of_one_type(found: Any, wanted: Any) -> bool:
    """Whether values have the types of those with the same keys; None stands for any."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _of_one_type(found[key], value) for key, value in wanted.items() if key in found
        )
    return found is None or wanted is None or isinstance(found, type(wanted))
