"""The same few images after each validation, with their captions: in validation.html and W&B."""

from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
import torch
import wandb
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from captioning.captioner import Caption
from captioning.data.images import read_image
from captioning.data.photo_shards import photo_size
from captioning.data.records import Record
from captioning.files import written_whole
from captioning.maps import ATTENTION, known_maps
from captioning.progress_bar import stage
from captioning.training.checkpoints import BestCheckpoint
from captioning.viewing import validation_page, viewer
from captioning.viewing.curves import Point, epoch_text
from captioning.viewing.overlay import LONG_SIDE, word_pictures
from captioning.viewing.validation_page import Example, PastCaption

PAGE = "validation.html"

IMAGE_SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""Scores of single images that are shown."""

OVERLAYS = 8
"""The most images whose figures are logged to W&B, each under a key of its own."""

OVERLAY_DPI = 100

RUNNERS_UP = 3
"""Alternatives that the interactive view shows for each word."""


class ShownImage(NamedTuple):
    """A validation image with its references, its latest caption, and this caption's scores."""

    record: Record
    caption: Caption
    scores: dict[str, float]


_latest: WeakKeyDictionary[Any, tuple[Any, list[ShownImage]]] = WeakKeyDictionary()
"""By module: the latest images, with the step, number and maps that they belong to."""


class ValidationImages(pl.Callback):
    """Base of callbacks that look at the same images after every validation.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for none.
        maps: maps of each word, by their names in `captioning.maps`; by default the
            model's default map. The first one is shown, the others can be compared with it.
    """

    def __init__(self, images: int = 8, maps: list[str] | None = None) -> None:
        self.images = images
        self.maps = tuple(maps or ())

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Check the names of the maps before anything is trained."""
        known_maps(self.maps, pl_module.model, pl_module.captioner.default_map)

    def records(self, trainer: pl.Trainer) -> list[Record]:
        """The images, without those whose photos are gone, as they may be with cached features."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        there = [record for record in data.val_records if photo_size(record.image) is not None]
        return there[:: max(1, len(there) // self.images)][: self.images]

    def captioned(self, trainer: pl.Trainer, module: Any) -> list[ShownImage]:
        """The images with the model's captions, shared by callbacks with equal arguments."""
        kind = trainer.global_step, self.images, self.maps
        if module in _latest and _latest[module][0] == kind:
            return _latest[module][1]
        records = self.records(trainer)
        photos = [record.image for record in records]
        with (
            stage("captioning the images to show"),
            torch.autocast(module.device.type, enabled=False),
            torch.inference_mode(False),  # some maps take gradients
        ):
            captions = module.captioner(photos, runners_up=RUNNERS_UP, maps=self.maps)
        by_name = scores_by_image(module)
        images = []
        for record, caption in zip(records, captions, strict=True):
            image = record.image_id
            scores = {name: its[image] for name, its in by_name.items() if image in its}
            images.append(ShownImage(record, caption, scores))
        _latest[module] = kind, images
        return images


def scores_by_image(module: Any) -> dict[str, dict[int | str, float]]:
    """The scores of the last validation by name and image id."""
    found: dict[str, dict[int | str, float]] = {}
    for metric in module.scores.values():
        found |= metric.by_image
    return {name: found[name] for name in IMAGE_SCORES if name in found}


class ValidationTable(ValidationImages):
    """Logs a W&B table of fixed validation images, and histograms of all images' scores.

    A row has the photo, its references, the caption, its scores, the interactive view and one
    overlay per word. The first images are also logged as ``val/overlay/0`` and so on, figures of
    all words with their maps, which W&B shows with a slider over the steps.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for no table.
        maps: maps of each word, by their names in `captioning.maps`; by default the model's own.
            The overlays show the first one, the interactive view compares them.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the table, except in the check before training and without W&B."""
        boards = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if not boards or not self.images or trainer.sanity_checking or not trainer.is_global_zero:
            return
        scores = scores_by_image(pl_module)
        images = self.captioned(trainer, pl_module)
        words = max((len(image.caption.words) for image in images), default=0)
        rows = []
        media: dict[str, Any] = {}
        for number, (record, caption, its_scores) in enumerate(images):
            photo = read_image(record.image, pl_module.captioner.preprocessing.max_pixels)
            page = viewer.html(photo, [caption.view()], record.image.name, LONG_SIDE)
            pictures = word_pictures(photo, caption.array(), caption.crop)
            overlays = [_jpeg(picture) for picture in pictures]
            if number < OVERLAYS:
                media[f"val/overlay/{number}"] = _figure(photo, caption)
            rows.append(
                [
                    _jpeg(photo),
                    "\n".join(record.captions),
                    caption.text,
                    *(its_scores.get(name) for name in scores),
                    # W&B's own style sheet would come from its server, which the page forbids.
                    wandb.Html(page, inject=False, data_is_not_path=True),
                    *overlays,
                    *[None] * (words - len(overlays)),
                ]
            )
        maps = {image.caption.shown_maps[0] for image in images} - {ATTENTION}
        of_words = [", ".join([f"word {number + 1}", *maps]) for number in range(words)]
        columns = ["image", "references", "caption", *scores, "view", *of_words]
        media |= {
            f"val/{name} of images": wandb.Histogram(list(by_image.values()))
            for name, by_image in scores.items()
        }
        for board in boards:
            board.log_table("val/captions", columns, rows, step=trainer.global_step)
            board.log_metrics(media, step=trainer.global_step)


def _jpeg(picture: Image.Image) -> wandb.Image:
    """The picture at the size of an overlay; JPEG takes a tenth of a PNG's bytes."""
    small = picture.copy()
    small.thumbnail((LONG_SIDE, LONG_SIDE))
    return wandb.Image(small, file_type="jpg")


def _figure(photo: Image.Image, caption: Caption) -> wandb.Image:
    """The photo and a panel for each word with its map, as a small JPEG."""
    figure, file = caption.figure(photo=photo), BytesIO()
    figure.savefig(file, format="png", dpi=OVERLAY_DPI)
    return wandb.Image(Image.open(file).convert("RGB"), file_type="jpg", caption=caption.text)


class ValidationPage(ValidationImages):
    """Writes validation.html into the run's folder: curves, and captions of the same images.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for no page.
        maps: maps of each word, by their names in `captioning.maps`; by default the model's own.
            The first one is shown at first, others can be selected or compared with it.
    """

    def __init__(self, images: int = 8, maps: list[str] | None = None) -> None:
        super().__init__(images, maps)
        self._losses: list[Point] = []
        self._validations: list[dict[str, Any]] = []
        self._loss = torch.zeros(())
        self._steps = 0

    def state_dict(self) -> dict[str, Any]:
        """The curves and captions so far, which a resumed training continues."""
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
        self._loss, self._steps = torch.tensor(state_dict["loss"]), state_dict["steps"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add the step's loss, of this process's share of the batch."""
        loss = outputs["loss"].detach()  # stays on its device: reading it would wait
        self._loss = self._loss.to(loss.device) + loss
        self._steps += 1

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Add the epoch's mean loss to the curve."""
        if self._steps:
            mean = self._loss.item() / self._steps
            self._losses.append(Point(float(trainer.current_epoch + 1), mean))
        self._loss, self._steps = torch.zeros(()), 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the page, except in the check before training and with `fast_dev_run`."""
        is_trial = trainer.sanity_checking or trainer.fast_dev_run  # type: ignore[attr-defined]
        if not self.images or is_trial or not trainer.is_global_zero:
            return
        images = self.captioned(trainer, pl_module)
        progress = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch + progress / trainer.num_training_batches
        told = [
            {"image": record.image_id, "caption": caption.text, "scores": its_scores}
            for record, caption, its_scores in images
        ]
        scores = {
            name.removeprefix("val/"): value.item()
            for name, value in trainer.callback_metrics.items()
            if name.startswith("val/")
        }
        self._validations.append({"epoch": epoch, "scores": scores, "images": told})
        curves: dict[str, list[Point]] = {}
        for validation in self._validations:
            for name, value in validation["scores"].items():
                curves.setdefault(name, []).append(Point(validation["epoch"], value))
        losses = list(self._losses)
        if self._steps:
            losses.append(Point(epoch, self._loss.item() / self._steps))
        folder = Path(trainer.default_root_dir)
        last = trainer.max_epochs
        of = f" of {last}" if last is not None and last > 0 else ""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        max_pixels = pl_module.captioner.preprocessing.max_pixels
        with stage(f"writing {PAGE}"), written_whole(folder / PAGE) as path:
            page = validation_page.html(
                folder.absolute().name,
                f"After epoch {epoch_text(epoch)}{of}: {len(data.train_records):,} images to "
                f"train on, {len(data.val_records):,} to validate",
                losses,
                curves,
                [self._example(image, max_pixels) for image in images],
                _best(trainer, curves),
            )
            path.write_text(page, encoding="ascii")

    def _example(self, image: ShownImage, max_pixels: int) -> Example:
        record, caption, _ = image
        history = [
            PastCaption(validation["epoch"], told["caption"], told["scores"])
            for validation in self._validations
            for told in validation["images"]
            if told["image"] == record.image_id
        ]
        photo = read_image(record.image, max_pixels)
        return Example(record.image.name, photo, caption.view(), record.captions, history)


def _best(trainer: pl.Trainer, curves: dict[str, list[Point]]) -> tuple[str, float] | None:
    """The score that decides which checkpoint is best, and its best epoch."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, BestCheckpoint):
            name = str(callback.monitor).removeprefix("val/")
            if name in curves:
                choose = max if callback.mode == "max" else min
                return name, choose(curves[name], key=lambda point: point.value).epoch
    return None
