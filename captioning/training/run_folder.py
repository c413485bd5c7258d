"""A training's folder: whether it may be written to, what is in it, and how it is resumed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from captioning.errors import InputError, shown
from captioning.files import remove_unfinished, written_whole
from captioning.progress_bar import say
from captioning.training.callbacks import StopEarly
from captioning.training.checkpoints import LastCheckpoint

ELSEWHERE = "give another --trainer.default_root_dir"

IN_CHECKPOINT = ("model.learning_rate", "model.encoder_learning_rate", "model.weight_decay")
"""Settings that a resumed training takes from its checkpoint, with the optimizer's state."""

OF_CALL = ("trainer.default_root_dir", "trainer.max_epochs")
"""Settings that a moved or a longer training changes as a matter of course."""


class RunFolder:
    """The folder of one training.

    Args:
        path: the folder, ``trainer.default_root_dir``.

    Attributes:
        best: the checkpoint with the best validation score.
        last: the checkpoint that a training resumes from.
        config: the complete configuration.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best = path / "best.ckpt"
        self.last = path / "last.ckpt"
        self.config = path / "config.yaml"

    def resumed(self, resume: bool, overwrite: bool) -> Path | None:
        """The checkpoint to resume from; None for a training that begins.

        The best one serves where a training was interrupted before it wrote its first last one.

        Raises:
            InputError: the folder has a checkpoint that would be lost.
        """
        kept = [path for path in (self.last, self.best) if path.exists()]
        if resume and kept:
            return kept[0]
        if kept and not overwrite:
            raise InputError(
                f"{self.path}: contains an earlier run; continue with --resume, start again with "
                f"--overwrite, or {ELSEWHERE}"
            )
        return None

    def changed(self, settings: Mapping[str, Any]) -> list[str]:
        """What a resumed training does otherwise than before, a line for each setting.

        Raises:
            InputError: a setting has changed that would have no effect.
        """
        if not self.config.exists():
            return []
        before = dict(_flat(yaml.safe_load(self.config.read_text(encoding="utf-8"))))
        lines = []
        for key, now in _flat(settings):
            if key in OF_CALL or before.get(key, now) == now:
                continue
            if key in IN_CHECKPOINT:
                raise InputError(
                    f"{key}: resumed with {shown(now)}, begun with {shown(before[key])}, which "
                    "the optimizer keeps; give that, or start again with --overwrite"
                )
            lines.append(
                f"resumed with another {key}: {shown(before[key])} before, {shown(now)} now"
            )
        return lines

    def check_writers(self, given: Sequence[Any]) -> None:
        """Check that the checkpoints and tables of a configuration are written in this folder.

        Args:
            given: callbacks and loggers.

        Raises:
            InputError: one would be written elsewhere, perhaps into another run's folder.
        """
        for each in given:
            if isinstance(each, ModelCheckpoint):
                place = Path(each.dirpath or self.path) / (each.filename or "")
            elif isinstance(each, LastCheckpoint):
                place = Path(each.path)
            elif isinstance(each, CSVLogger):
                place = Path(each.log_dir)
            else:
                continue
            if not place.resolve().is_relative_to(self.path.resolve()):
                raise InputError(f"{place}: outside of the run's folder; name one in {self.path}")

    def prepare(self, resumed: Path | None, settings: dict[str, Any]) -> None:
        """Remove what an overwritten or killed run left, and write the configuration."""
        for checkpoint in (self.last, self.best):
            if resumed is None:  # of a run that is overwritten: never resume from it
                checkpoint.unlink(missing_ok=True)
            remove_unfinished(checkpoint)
        with written_whole(self.config) as path:
            path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def result(self, shows_progress: bool) -> Path:
        """The best checkpoint, or the last one if no validation has run."""
        if self.best.exists():
            return self.best
        if shows_progress:
            say(f"there is no {self.best.name}: no validation has run")
        return self.last


def resumable(path: Path, module: pl.LightningModule) -> dict[str, Any]:
    """The content of a checkpoint that a training can resume from.

    Raises:
        InputError: it is damaged, or of another model.
    """
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        found = {name: value.shape for name, value in saved["state_dict"].items()}
        [optimizer] = saved["optimizer_states"]
        trained = sum(len(group["params"]) for group in optimizer["param_groups"])
    except Exception:  # of a dozen kinds: the file may hold anything
        raise _not_resumable(path, "damaged, or not a checkpoint of a training") from None
    wanted = {name: value.shape for name, value in module.state_dict().items()}
    if other := sorted({name for name, _ in found.items() ^ wanted.items()}):
        raise _not_resumable(path, f"{other[0]} differs from the model's")
    if trained != sum(parameter.requires_grad for parameter in module.parameters()):
        raise _not_resumable(path, "other parts of the model were trained")
    return saved


def _not_resumable(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: cannot be resumed from ({reason}); put an earlier copy there, give the "
        "configuration that it was trained with, or start again with --overwrite"
    )


def ended(saved: dict[str, Any], trainer: pl.Trainer) -> str | None:
    """Why nothing is left of a checkpoint's training, and what to change; None if it goes on."""
    epochs = saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    steps, last_epoch = trainer.max_steps, trainer.max_epochs
    if last_epoch is not None and 0 <= last_epoch <= epochs:
        return (
            f"ended after epoch {epochs}; to continue, raise trainer.max_epochs, now {last_epoch}"
        )
    if 0 <= steps <= saved["global_step"]:
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


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a configuration, each with its dotted key."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
