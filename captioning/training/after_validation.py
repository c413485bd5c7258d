"""What is computed after every validation: grounding scores, and captions of a few fixed images."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pytorch_lightning as pl
import torch
from PIL import Image

from captioning.captioner import Caption
from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon, categories, ground_maps
from captioning.evaluation.grounding.estimates import GAINS
from captioning.evaluation.grounding.looks import IN_BOX, POINTING
from captioning.inference.batches import captioned
from captioning.maps import known_maps
from captioning.numbers import Checked, TableImages
from captioning.progress_bar import stage

GROUNDING_SCORES = {
    POINTING: POINTING,
    GAINS[POINTING]: "pointing minus Gaussian",
    IN_BOX: IN_BOX,
    "CHAIR-i": "CHAIR-i",
    "CHAIR-s": "CHAIR-s",
}
"""Scores of a grounding report that are logged, with their names in the log."""

IMAGE_SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""Scores of single images that are shown."""

RUNNERS_UP = 3
"""Alternatives that the interactive view shows for each word."""


@dataclass(frozen=True)
class FixedImage:
    """A validation image with its latest caption.

    Attributes:
        record: the image with its references.
        caption: the model's caption.
        scores: of the caption, by name.
        max_pixels: limit on the photo's pixels.
    """

    record: Record
    caption: Caption
    scores: dict[str, float]
    max_pixels: int

    def photo(self) -> Image.Image:
        """The photo, read again at each call: a few at full size fill the memory.

        Raises:
            InputError: it cannot be read.
        """
        return read_image(self.record.image, self.max_pixels)


_latest: WeakKeyDictionary[Any, tuple[Any, list[FixedImage]]] = WeakKeyDictionary()
"""By module: the latest images, with the step, number and maps that they belong to."""


class ShowsFixedImages(Checked, pl.Callback):
    """Base of callbacks that show the same images after every validation.

    Several callbacks with equal arguments have them captioned once.

    Args:
        images: number of images, evenly spaced in the validation split; 0 shows nothing.
        maps: maps of each word, by their names in `captioning.maps`; by default the
            model's default map. The first one is shown, the others can be compared with it.
    """

    def __init__(self, images: TableImages = 8, maps: list[str] | None = None) -> None:
        self.images = images
        self.maps = tuple(maps or ())

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Check the names of the maps before anything is trained.

        Raises:
            MapError: the model does not have one of them.
        """
        known_maps(self.maps, pl_module.model, pl_module.captioner.default_map)

    def fixed_images(self, trainer: pl.Trainer, module: Any) -> list[FixedImage]:
        """The images whose photos exist, with the model's captions.

        Raises:
            InputError: a photo cannot be read.
        """
        kind = trainer.global_step, self.images, self.maps
        if module not in _latest or _latest[module][0] != kind:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            records = _evenly(data.val_records, self.images)
            with stage("captioning the images to show"):
                _latest[module] = kind, self._captioned(module, records)
        return _latest[module][1]

    def _captioned(self, module: Any, records: list[Record]) -> list[FixedImage]:
        photos = [record.image for record in records]
        # Not in inference mode, if a trainer validates in it: some maps take gradients.
        with torch.autocast(module.device.type, enabled=False), torch.inference_mode(False):
            captions = module.captioner.caption(photos, runners_up=RUNNERS_UP, maps=self.maps)
        by_name = scores_by_image(module)
        limit = module.captioner.preprocessing.max_pixels
        images = []
        for record, caption in zip(records, captions, strict=True):
            its = {name: scores.get(record.image_id) for name, scores in by_name.items()}
            scores = {name: score for name, score in its.items() if score is not None}
            images.append(FixedImage(record, caption, scores, limit))
        return images


def scores_by_image(module: Any) -> dict[str, dict[int | str, float]]:
    """The scores of the last validation by name and image id."""
    found: dict[str, dict[int | str, float]] = {}
    for metric in module.scores.values():
        found |= metric.by_image
    return {name: found[name] for name in IMAGE_SCORES if name in found}


class ValidationGrounding(Checked, pl.Callback):
    """Logs pointing accuracy and hallucinations, if validation images have objects with boxes.

    The model captions some images, and its maps are scored as `captioning ground` does without
    deletion and insertion: whether a map's maximum is inside the box of the object that the word
    names, also in excess of a centred Gaussian; the map's mass in the box; and CHAIR, the shares of
    mentions and of captions that name an absent object (Rohrbach et al. 2018). Undefined scores,
    such as pointing if no caption names an object, are left out.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for none.
        map: which map of a word is scored, by its name in `captioning.maps`; by default the
            model's default map.
    """

    def __init__(self, images: TableImages = 100, map: str | None = None) -> None:
        self.images = images
        self.maps = () if map is None else (map,)

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Check the name of the map before anything is trained.

        Raises:
            MapError: the model does not have it.
        """
        known_maps(self.maps, pl_module.model, pl_module.captioner.default_map)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the scores, except in the check before training and with `fast_dev_run`.

        Every process computes the same scores, since any of them may be monitored.

        Raises:
            InputError: a photo cannot be read, or a mask cannot be decoded.
        """
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if is_trial(trainer) or not self.images or not _has_objects(data.val_records):
            return
        with stage("grounding captions"), torch.autocast(pl_module.device.type, enabled=False):
            found = self._summary(pl_module.captioner, data.val_records)
        for name, logged in GROUNDING_SCORES.items():
            key = f"val/{logged}"
            trainer.callback_metrics.pop(key, None)  # an earlier epoch's, if undefined now
            if name in found:
                pl_module.log(key, found[name], sync_dist=True)

    def _summary(self, captioner: Any, records: list[Record]) -> dict[str, float]:
        """The scores of a grounding report of some of the records."""
        chosen = _evenly(records, self.images)
        if not chosen:
            return {}
        captions: dict[int | str, str] = {}
        photos = [record.image for record in chosen]
        said = captioned(captioner, photos, progress=False)
        for record, (_, caption) in zip(chosen, said, strict=True):
            if isinstance(caption, InputError):
                raise caption
            captions[record.image_id] = caption.text
        [report] = ground_maps(
            captioner,
            chosen,
            captions,
            Lexicon.of(categories(records)),
            batch_size=16,
            seed=0,
            maps=self.maps,
            hides_regions=False,
        ).values()
        return report.summary


def is_trial(trainer: pl.Trainer) -> bool:
    """Whether this is the check before training, or a few batches are tried out."""
    return trainer.sanity_checking or bool(getattr(trainer, "fast_dev_run", 0))


def _evenly(records: list[Record], count: int) -> list[Record]:
    """Some of the records whose photos exist: with cached features, photos may be gone."""
    there = [record for record in records if record.image.exists()]
    return there[:: max(1, len(there) // count)][:count]


def _has_objects(records: list[Record]) -> bool:
    """Whether images have boxes of object categories, rather than of single captions' phrases."""
    return bool(categories(records)) and not any(record.phrases for record in records)
