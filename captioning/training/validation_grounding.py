"""Grounding scores after every validation."""

from typing import Any

import pytorch_lightning as pl
import torch

from captioning.evaluation.grounding import Lexicon, categories, ground
from captioning.evaluation.grounding.mentions import IN_BOX, POINTING
from captioning.evaluation.grounding.scores import GAINS
from captioning.progress_bar import stage
from captioning.training.validation_images import ValidationImages

GROUNDING_SCORES = {
    POINTING: POINTING,
    GAINS[POINTING]: "pointing minus Gaussian",
    IN_BOX: IN_BOX,
    "CHAIR-i": "CHAIR-i",
    "CHAIR-s": "CHAIR-s",
}
"""Scores of a grounding report that are logged, with their names in the log."""


class ValidationGrounding(ValidationImages):
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

    def __init__(self, images: int = 100, map: str | None = None) -> None:
        super().__init__(images, None if map is None else [map])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the scores, except in the check before training and with `fast_dev_run`.

        Every process computes the same scores, since any of them may be monitored.
        """
        if not self.images or trainer.sanity_checking or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        names = categories(data.val_records)
        records = self.records(trainer)
        # Boxes of single captions' phrases are not of object categories.
        if not records or not names or any(record.phrases for record in data.val_records):
            return
        captioner, texts = pl_module.captioner, {}
        with stage("grounding captions"), torch.autocast(pl_module.device.type, enabled=False):
            captions = captioner([record.image for record in records])
            for record, caption in zip(records, captions, strict=True):
                texts[record.image_id] = caption.text
            [report] = ground(
                captioner,
                records,
                texts,
                Lexicon.of(names),
                batch_size=16,
                seed=0,
                maps=self.maps,
                drops=False,
            ).values()
        for name, logged in GROUNDING_SCORES.items():
            key = f"val/{logged}"
            trainer.callback_metrics.pop(key, None)  # an earlier epoch's, if undefined now
            if name in report.summary:
                pl_module.log(key, report.summary[name], sync_dist=True)
