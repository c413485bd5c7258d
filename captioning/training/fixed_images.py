"""The same few validation images, captioned after every epoch for all that show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
import torch
from PIL import Image

from captioning.captioner import Caption
from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.maps import known_maps
from captioning.numbers import Checked, TableImages
from captioning.progress_bar import stage

SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""The scores of single images that are shown."""

RUNNERS_UP = 3
"""Other words that the interactive view tells of each word."""


Kind = tuple[int, tuple[str, ...]]
"""How many images, and which maps of their words."""

_captioned_since: WeakKeyDictionary[Any, dict[Kind, list["FixedImage"]]] = WeakKeyDictionary()
"""By module and kind, since the beginning of the last validation."""


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

    Several of them that show the same maps of as many images have them captioned once.

    Args:
        images: how many images, taken evenly from the validation split; 0 shows nothing.
        maps: the maps of each word by their names in `captioning.maps`, the first to be shown and
            the others to compare; the one that the model shows if none.
    """

    def __init__(self, images: TableImages = 8, maps: list[str] | None = None) -> None:
        self.images = images
        self.maps = known_maps(maps) if maps else ()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Forget the captions of the validation before."""
        _captioned_since.pop(pl_module, None)

    def fixed_images(self, trainer: pl.Trainer, module: Any) -> list[FixedImage]:
        """The images whose photos are there, with what the model says of them now.

        Raises:
            InputError: a photo cannot be read.
        """
        captioned = _captioned_since.setdefault(module, {})
        kind = self.images, self.maps
        if kind not in captioned:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            with stage("captioning the images to show"):
                records = self._records(data.val_records)
                captioned[kind] = _captioned(module, records, self.maps)
        return captioned[kind]

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


def _captioned(module: Any, records: list[Record], maps: Sequence[str]) -> list[FixedImage]:
    photos = [record.image for record in records]
    # Outside of inference mode, if a trainer validates in it: some maps take gradients.
    with torch.autocast(module.device.type, enabled=False), torch.inference_mode(False):
        captions = module.captioner.caption(photos, runners_up=RUNNERS_UP, maps=maps)
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
