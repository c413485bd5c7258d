"""A training's folder: whether it may be written to, and what is in it afterwards."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from captioning.errors import InputError, UsageError, shown
from captioning.files import remove_unfinished, written_whole
from captioning.progress_bar import say
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
        try:
            earlier = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):  # removed or damaged
            return []
        before, lines = dict(_flat(earlier)), []
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
        """Check where a configuration's checkpoints and tables are written.

        Args:
            given: callbacks and loggers.

        Raises:
            UsageError: one would write outside of this folder, perhaps into another run's.
        """
        for each in given:
            if isinstance(each, ModelCheckpoint):
                inside = Path(each.dirpath or self.path / "checkpoints")
                key, place = "trainer.callbacks", inside / (each.filename or "")
            elif isinstance(each, LastCheckpoint):
                key, place = "trainer.callbacks", Path(each.path)
            elif isinstance(each, CSVLogger):
                key, place = "trainer.logger", Path(each.log_dir)
            else:
                continue
            if not place.resolve().is_relative_to(self.path.resolve()):
                raise UsageError(
                    f"{key}: {place} is outside of the run's folder; give a place in {self.path}"
                )

    def prepare(self, resumed: Path | None, settings: dict[str, Any]) -> None:
        """Remove what an overwritten or killed run left, and write the configuration."""
        for checkpoint in (self.last, self.best):
            if resumed is None:  # of a run that is overwritten: never resume from it
                checkpoint.unlink(missing_ok=True)
            remove_unfinished(checkpoint)
        with written_whole(self.config) as path:
            path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def result(self, has_validated: bool, shows_progress: bool) -> Path:
        """The best checkpoint, or the last one if there is none.

        Raises:
            InputError: neither is there.
        """
        if self.best.exists():
            return self.best
        if not self.last.exists():
            raise InputError(
                f"{self.path}: its checkpoints were removed while it trained; train again, or "
                f"{ELSEWHERE}"
            )
        if shows_progress:
            reason = "it was removed" if has_validated else "no validation has run"
            say(f"there is no {self.best.name}: {reason}")
        return self.last


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a configuration, each with its dotted key."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
