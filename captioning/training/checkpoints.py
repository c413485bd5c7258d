"""A training's checkpoints: when they are written, and how a training resumes from one."""

import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from captioning.captioner import load
from captioning.captioner.checkpoint import CONFIG_KEY, fitted_tensors
from captioning.errors import InputError, format_value
from captioning.files import dotted_items, written_whole
from captioning.models.encoder import measured_offset
from captioning.training.callbacks import StopEarly, is_at_zero
from captioning.training.configuration import check_within

BEST, LAST, CONFIG = "best.ckpt", "last.ckpt", "config.yaml"
"""A run's files."""

PARTS = (
    *("epoch", "global_step", "pytorch-lightning_version", "state_dict", "loops", "callbacks"),
    *("optimizer_states", "lr_schedulers"),
)
"""The parts of a checkpoint that a training needs to resume from it."""

OPTIMIZER_SETTINGS = ("model.learning_rate", "model.encoder_learning_rate", "model.weight_decay")
"""Settings that are part of the optimizer's state, which a resumed training restores."""


class BestCheckpoint(ModelCheckpoint):
    """Keeps best.ckpt, with the best validation score, in the run's folder.

    Args:
        monitor: the validation score.
        mode: ``max`` if higher is better, ``min`` if lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(filename="best", monitor=monitor, mode=mode, enable_version_counter=False)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
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
        """Whether to save: also if all scores are 0 so far, as the last epoch has learnt most."""
        if current is not None and is_at_zero(self.mode, current, self.best_model_score):
            return True
        return super().check_monitor_top_k(trainer, current)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score so far, even if the run's folder has been moved."""
        assert self.dirpath is not None
        path = Path(self.dirpath, BEST)
        if not path.exists():  # no validation yet, or somebody removed it
            return
        moved: dict[str, Any] = {"dirpath": self.dirpath}
        if (best := state_dict["best_model_score"]) is not None:
            moved |= {"best_model_path": str(path), "kth_best_model_path": str(path)}
            moved["best_k_models"] = {str(path): best}
        super().load_state_dict(state_dict | moved)


def store_offset(path: Path) -> None:
    """Measure the encoder's offset, and add it to a checkpoint, unless the file has it.

    Training changes the offset, so it is measured once, for the best checkpoint.
    """
    captioner = load(path, kernels=False)
    encoder, side = captioner.model.encoder, captioner.preprocessing.size
    if side not in encoder.offsets:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content[CONFIG_KEY]["offset"] = list(measured_offset(encoder, side))
        WholeCheckpoints(path.parent).save_checkpoint(content, path)


class LastCheckpoint(Checkpoint):
    """Keeps last.ckpt, from which a training resumes: after every epoch, and every few minutes.

    Lightning's own `save_last` writes only in epochs that are among the best.
    """

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._saved = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if it is time, except after the epoch's last step, when the epoch's end saves."""
        is_last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if is_last or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # gradients that wait for the optimizer's step would be lost
        is_due = time.monotonic() - self._saved >= 60 * self.minutes
        if trainer.strategy.broadcast(is_due):  # all processes save together
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir, LAST))
        self._saved = time.monotonic()


class WholeCheckpoints(TorchCheckpointIO):
    """Writes to a temporary file first: Lightning's writer may leave half a checkpoint.

    Args:
        folder: the run's, outside of which nothing is written, however a callback names its files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        check_within(self.folder, Path(path))
        content = BytesIO()
        torch.save(checkpoint, content)
        with written_whole(path) as temporary:
            temporary.write_bytes(content.getbuffer())


def shrink_checkpoint(path: Path, initial_tensors: Mapping[str, Tensor]) -> None:
    """Rewrite the checkpoint of a finished training in little room; more epochs can follow.

    The optimizer's moments go, and the latest weights beside averaged ones. Trained weights keep
    16 bits of each number, as do others that lose nothing by it.

    Args:
        path: the checkpoint.
        initial_tensors: the model's before the training, by name.
    """
    content = torch.load(path, map_location="cpu", weights_only=True)
    for optimizer in content["optimizer_states"]:
        optimizer["state"] = {}
    tensors = content["state_dict"]
    for name, tensor in tensors.items():
        initial = initial_tensors.get(name.removeprefix("model."))
        is_trained = initial is None or not torch.equal(initial, tensor)
        half = tensor.half() if tensor.is_floating_point() else tensor
        if half.isfinite().all() and (is_trained or torch.equal(half.to(tensor.dtype), tensor)):
            tensors[name] = half
    if "current_model_state" in content:
        content["current_model_state"] = tensors
    WholeCheckpoints(path.parent).save_checkpoint(content, path)


def resume_path(folder: Path, resume: bool, overwrite: bool) -> Path | None:
    """The checkpoint to resume from, the last or else the best; None for a training that begins.

    Raises:
        InputError: the folder has a checkpoint that would be lost.
    """
    paths = [folder / name for name in (LAST, BEST) if (folder / name).exists()]
    if paths and not resume and not overwrite:
        raise InputError(
            f"{folder}: contains an earlier run; continue with --resume, start again with "
            "--overwrite, or give another --trainer.default_root_dir"
        )
    return paths[0] if paths and resume else None


def read_checkpoint(path: Path, module: pl.LightningModule) -> dict[str, Any]:
    """The content of a checkpoint; InputError if it is damaged, or of another model."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        for part in PARTS:
            content[part]
        content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        fitted_tensors(module.state_dict(), content["state_dict"])
        [optimizer] = content["optimizer_states"]
        parameter_count = sum(len(group["params"]) for group in optimizer["param_groups"])
        if parameter_count != sum(parameter.requires_grad for parameter in module.parameters()):
            raise InputError("other parts of the model were trained")
    except InputError as error:
        raise InputError(f"{path}: {error}; give the configuration of that training") from None
    except Exception as error:  # of a dozen kinds: the file may hold anything
        lacks = f" (it lacks {error})" if isinstance(error, KeyError) else ""
        raise InputError(
            f"{path}: damaged, or of no training{lacks}; restore it, or start again with "
            "--overwrite"
        ) from None
    return content


def end_reason(content: dict[str, Any], trainer: pl.Trainer) -> str | None:
    """Why a checkpoint's training is finished, and which setting to raise; None if it is not."""
    epochs = content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= epochs:
        option = "trainer.max_epochs (finetune: --epochs)"
        return f"ended after epoch {epochs}; to continue, raise {option}"
    if 0 <= trainer.max_steps <= content["global_step"]:
        return f"ended after step {trainer.max_steps}; to continue, raise trainer.max_steps"
    for callback in trainer.early_stopping_callbacks:
        state = content["callbacks"].get(callback.state_key, {})
        has_stopped = isinstance(callback, StopEarly) and state.get("stopping_reason_message")
        if has_stopped and state["wait_count"] >= callback.patience:
            option = "early_stopping.patience (finetune: begin again by --overwrite)"
            return f"stopped early after epoch {epochs}; to continue, raise {option}"
    return None


def changed_settings(config_file: Path, settings: Mapping[str, Any]) -> list[str]:
    """One line for each setting of a resumed training that differs from `config_file`.

    Raises:
        InputError: a setting has changed that would have no effect.
    """
    old_settings = dict(dotted_items(yaml.safe_load(config_file.read_text(encoding="utf-8"))))
    lines = []
    for key, new in dotted_items(settings):
        old = old_settings.get(key, new)
        if old == new or key in ("trainer.default_root_dir", "trainer.max_epochs"):
            continue  # a training may be moved, or go on for longer
        if key in OPTIMIZER_SETTINGS:
            raise InputError(
                f"{key}: resumed with {format_value(new)}, begun with {format_value(old)}, which "
                "the optimizer keeps; give that, or start again with --overwrite"
            )
        lines.append(
            f"resumed with another {key}: {format_value(old)} before, {format_value(new)} now"
        )
    return lines
