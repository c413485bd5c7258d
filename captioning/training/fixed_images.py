"""The same few validation images, captioned after every epoch for all that show them."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
import torch
from PIL import Image

from captioning.captioner import Caption
from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.numbers import Checked, TableImages
from captioning.progress_bar import stage

SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""The scores of single images that are shown."""

RUNNERS_UP = 3
"""Other words that the interactive view tells of each word."""


_captioned_since: WeakKeyDictionary[Any, dict[int, list["FixedImage"]]] = WeakKeyDictionary()
"""By module and number of images, since the beginning of the last validation."""


@dataclass(frozen=True)
class FixedImage:
    """One of them, after a validation.

    Attributes:
        record: the image with its references.
        caption: what the model says of it now.
        scores: of the caption that the validation found, by name.
        max_pixels: photos of more are refused.
    """

    record: Record
    caption: Caption
    scores: dict[str, float]
    max_pixels: int

    def photo(self) -> Image.Image:
        """The photo, read anew: a few of them at their full size fill a memory.

        Raises:
            InputError: it cannot be read.
        """
        return read_image(self.record.image, self.max_pixels)


class ShowsFixedImages(Checked, pl.Callback):
    """A callback that shows the same validation images after every validation.

    Several of them that show as many images have them captioned once.

    Args:
        images: how many images, taken evenly from the validation split; 0 shows nothing.
    """

    def __init__(self, images: TableImages = 8) -> None:
        self.images = images

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Forget the captions of the validation before."""
        _captioned_since.pop(pl_module, None)

    def fixed_images(self, trainer: pl.Trainer, module: Any) -> list[FixedImage]:
        """The images whose photos are there, with what the model says of them now.

        Raises:
            InputError: a photo cannot be read.
        """
        captioned = _captioned_since.setdefault(module, {})
        if self.images not in captioned:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            with stage("captioning the images to show"):
                captioned[self.images] = _captioned(module, self._records(data.val_records))
        return captioned[self.images]

    def _records(self, records: list[Record]) -> list[Record]:
        # With features computed before, a training may go on where its photos have gone.
        there = [record for record in records if record.image.exists()]
        return there[:: max(1, len(there) // self.images)][: self.images]


def scores_by_image(module: Any) -> dict[str, dict[int | str, float]]:
    """The scores of the last validation by name and image id."""
    found = {
        name: by_image
        for metric in module.scores.values()
        for name, by_image in metric.by_image.items()
    }
    return {name: found[name] for name in SCORES if name in found}


def _captioned(module: Any, records: list[Record]) -> list[FixedImage]:
    photos = [record.image for record in records]
    with torch.autocast(module.device.type, enabled=False):
        captions = module.captioner.caption(photos, runners_up=RUNNERS_UP)
    scores = scores_by_image(module)
    limit = module.captioner.preprocessing.max_pixels
    return [
        FixedImage(
            record,
            caption,
            {
                name: by_image[record.image_id]
                for name, by_image in scores.items()
                if record.image_id in by_image
            },
            limit,
        )
        for record, caption in zip(records, captions, strict=True)
    ]
