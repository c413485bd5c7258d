"""Writes validation.html after every validation."""

import math
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from captioning.files import written_whole
from captioning.numbers import TableImages
from captioning.progress_bar import stage
from captioning.training.after_validation import FixedImage, ShowsFixedImages, is_trial
from captioning.training.checkpoints import BestCheckpoint
from captioning.viewing import validation_page
from captioning.viewing.curves import Point, epoch_text
from captioning.viewing.validation_page import Example, Told

PAGE = "validation.html"


class ValidationPage(ShowsFixedImages):
    """Writes validation.html into the run's folder: curves, and captions of the same images.

    Checkpoints contain its history, which a resumed training continues.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for no page.
        maps: maps of each word, by their names in `captioning.maps`; by default the model's own.
            The first one is shown at first, others can be selected or compared with it.
    """

    def __init__(self, images: TableImages = 8, maps: list[str] | None = None) -> None:
        super().__init__(images, maps)
        self._losses: list[Point] = []
        self._validations: list[dict[str, Any]] = []
        self._loss = torch.zeros(())
        self._steps = 0

    def state_dict(self) -> dict[str, Any]:
        """The curves and captions so far."""
        return {
            "losses": [list(point) for point in self._losses],
            "validations": list(self._validations),
            "loss": self._loss.item(),
            "steps": self._steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore them."""
        self._losses = [Point(*point) for point in state_dict["losses"]]
        self._validations = list(state_dict["validations"])
        self._loss = torch.tensor(state_dict["loss"])
        self._steps = state_dict["steps"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add the step's loss, of this process's share of the batch."""
        loss: Tensor = outputs["loss"].detach()  # stays on its device: reading it would wait
        self._loss = self._loss.to(loss.device) + loss
        self._steps += 1

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Add the epoch's mean loss to the curve."""
        self._losses = self._losses_so_far(float(trainer.current_epoch + 1))
        self._loss, self._steps = torch.zeros(()), 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the page, except in the check before training and with `fast_dev_run`."""
        if not self.images or is_trial(trainer) or not trainer.is_global_zero:
            return
        images = self.fixed_images(trainer, pl_module)
        epoch = _epochs(trainer)
        self._validations.append(
            {
                "epoch": epoch,
                "scores": _scores(trainer),
                "images": [
                    {
                        "image": image.record.image_id,
                        "caption": image.caption.text,
                        "scores": image.scores,
                    }
                    for image in images
                ],
            }
        )
        with stage(f"writing {PAGE}"):
            self._write(trainer, images, epoch)

    def _write(self, trainer: pl.Trainer, images: list[FixedImage], epoch: float) -> None:
        folder = Path(trainer.default_root_dir)
        curves: dict[str, list[Point]] = {}
        for validation in self._validations:
            for name, value in validation["scores"].items():
                curves.setdefault(name, []).append(Point(validation["epoch"], value))
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        last = trainer.max_epochs
        of = f" of {last}" if last is not None and last > 0 else ""
        page = validation_page.html(
            folder.absolute().name,
            f"After epoch {epoch_text(epoch)}{of}: {len(data.train_records):,} images to train "
            f"on, {len(data.val_records):,} to validate",
            self._losses_so_far(epoch),
            curves,
            [self._example(image) for image in images],
            _best(trainer, curves),
        )
        with written_whole(folder / PAGE) as path:
            path.write_text(page, encoding="ascii")

    def _losses_so_far(self, epoch: float) -> list[Point]:
        if not self._steps:
            return self._losses
        return [*self._losses, Point(epoch, self._loss.item() / self._steps)]

    def _example(self, image: FixedImage) -> Example:
        history = [
            Told(validation["epoch"], told["caption"], told["scores"])
            for validation in self._validations
            for told in validation["images"]
            if told["image"] == image.record.image_id
        ]
        record = image.record
        return Example(record.image.name, image.photo(), image.caption, record.captions, history)


def _epochs(trainer: pl.Trainer) -> float:
    """Epochs trained so far, with the fraction of an unfinished one."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    total = trainer.num_training_batches
    share = batches / total if total and math.isfinite(total) else 1.0
    return trainer.current_epoch + share


def _scores(trainer: pl.Trainer) -> dict[str, float]:
    return {
        name.removeprefix("val/"): value.item()
        for name, value in trainer.callback_metrics.items()
        if name.startswith("val/")
    }


def _best(trainer: pl.Trainer, curves: dict[str, list[Point]]) -> tuple[str, float] | None:
    """The score that decides which checkpoint is best, and its best epoch."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, BestCheckpoint):
            name = str(callback.monitor).removeprefix("val/")
            if name in curves:
                choose = max if callback.mode == "max" else min
                return name, choose(curves[name], key=lambda point: point.value).epoch
    return None
