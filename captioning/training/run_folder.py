"""A training's folder: whether it may be written to, and what is in it afterwards."""

import sys
from pathlib import Path
from typing import Any

import yaml

from captioning.errors import InputError
from captioning.files import remove_unfinished, written_whole

ELSEWHERE = "give another --trainer.default_root_dir"


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

        Raises:
            InputError: the folder has a checkpoint that would be lost.
        """
        if resume and self.last.exists():
            return self.last
        if not overwrite and (self.last.exists() or self.best.exists()):
            if resume:
                raise InputError(
                    f"{self.path}: contains {self.best.name} but no {self.last.name} to resume "
                    f"from; start again with --overwrite, or {ELSEWHERE}"
                )
            raise InputError(
                f"{self.path}: contains an earlier run; continue with --resume, start again with "
                f"--overwrite, or {ELSEWHERE}"
            )
        return None

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
            print(f"there is no {self.best.name}: {reason}", file=sys.stderr)
        return self.last
