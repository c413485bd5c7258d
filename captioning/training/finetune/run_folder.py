"""The folder of a finetuning: which training it holds, and what stays in it at the end."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from captioning.captioner import Captioner, load
from captioning.errors import InputError
from captioning.files import only_writer, read_json, write_json, written_whole
from captioning.progress_bar import say
from captioning.training.checkpoints import BEST, LAST, shrink_checkpoint

ARGUMENTS, SETTINGS, FEATURES = "finetune.json", "finetune.yaml", "features"
MODEL, EARLIER = "best.safetensors", "earlier.safetensors"
"""Files that finetuning adds to a run: its arguments, settings, features and models."""

PHOTOS, ENDED = "photos", "ended"
"""Keys of the arguments' file: hashes of the model's training photos, and its epochs."""


@dataclass(frozen=True)
class EarlierModel:
    """The model that a run had before.

    Attributes:
        captioner: the model.
        train_hashes: hashes of the photos that it was trained on.
    """

    captioner: Captioner
    train_hashes: Collection[str]


@dataclass(frozen=True)
class RunFolder:
    """The folder of a finetuning."""

    path: Path

    @property
    def model_file(self) -> Path:
        """The file of the model."""
        return self.path / MODEL

    @property
    def features(self) -> Path:
        """The folder of the photos' features."""
        return self.path / FEATURES

    def continues(self, arguments: dict[str, Any], overwrite: bool) -> bool:
        """Whether a run continues with these arguments; otherwise it begins.

        Raises:
            InputError: the run has other arguments, or is of `captioning train`.
        """
        has_model = any((self.path / name).exists() for name in (LAST, BEST, MODEL))
        record = self._record()
        differences = [
            name
            for name, argument in arguments.items()
            if record.get(name) != argument and name not in ("stages", "digest")
        ]
        if has_model and differences and not overwrite:
            raise InputError(
                f"{self.path}: contains another training (by {', '.join(differences)}); name "
                "another folder by --out, or replace it by --overwrite"
            )
        is_lost = ENDED in record and not self.model_file.exists()
        if overwrite or not has_model or is_lost:
            return False
        has_same_photos: bool = record["digest"] == arguments["digest"]
        if not has_same_photos:
            say(
                f"photos or captions have changed: training again; {EARLIER} keeps the model so far"
            )
        return has_same_photos

    def is_finished(self, epochs: int | None = None) -> bool:
        """Whether the run has its model, after at least this number of epochs."""
        record = self._record()
        if ENDED not in record or not self.model_file.exists():
            return False
        return bool((epochs or 0) <= record[ENDED])

    def prepare(self, settings: dict[str, Any], arguments: dict[str, Any], overwrite: bool) -> None:
        """Write the settings for users, and remove features of another encoder."""
        with only_writer(self.path):  # not while a training runs there
            stages = self._record().get("stages", arguments["stages"])
            if overwrite or stages != arguments["stages"]:
                shutil.rmtree(self.features, ignore_errors=True)
            with written_whole(self.path / SETTINGS) as temporary:
                temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def begin(self, arguments: dict[str, Any], overwrite: bool) -> None:
        """Write the arguments, and keep the model so far.

        It is a candidate for the model at the end, unless it is overwritten.
        """
        if self.model_file.exists():
            with written_whole(self.path / EARLIER) as temporary:
                shutil.copyfile(self.model_file, temporary)
            train_hashes = self._record().get(PHOTOS)
            if train_hashes is not None and not overwrite:
                arguments = arguments | {PHOTOS: train_hashes}
        write_json(self.path / ARGUMENTS, arguments)

    def earlier_model(self) -> EarlierModel | None:
        """The model before this training, if it is a candidate."""
        file, train_hashes = self.path / EARLIER, self._record().get(PHOTOS)
        if train_hashes is None or not file.exists():
            return None
        return EarlierModel(load(file), frozenset(train_hashes))

    def finish(
        self, arguments: dict[str, Any], epochs: int, train_hashes: Collection[str] | None
    ) -> None:
        """Write that the run has ended.

        Args:
            arguments: of the run.
            epochs: number of epochs.
            train_hashes: hashes of the model's training photos; None if it is the earlier model.
        """
        if train_hashes is None:
            train_hashes = self._record()[PHOTOS]
        ended = {PHOTOS: sorted(train_hashes), ENDED: epochs}
        write_json(self.path / ARGUMENTS, arguments | ended)

    def shrink(self, start: Captioner) -> None:
        """Remove what takes much room: features, the best checkpoint, parts of the last one.

        Features can be made again, and the last checkpoint keeps what more epochs need.
        """
        shutil.rmtree(self.features, ignore_errors=True)
        (self.path / BEST).unlink(missing_ok=True)
        shrink_checkpoint(self.path / LAST, start.model.state_dict())

    def _record(self) -> dict[str, Any]:
        """The content of the arguments' file; empty without one."""
        file = self.path / ARGUMENTS
        record: dict[str, Any] = read_json(file) if file.exists() else {}
        return record
