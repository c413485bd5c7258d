"""Whether a model in training looks at what it names, after every validation."""

from typing import Any

import pytorch_lightning as pl
import torch

from captioning.data.records import Record
from captioning.errors import InputError
from captioning.evaluation.grounding import Lexicon, categories, ground_maps
from captioning.evaluation.grounding.estimates import GAINS
from captioning.evaluation.grounding.looks import IN_BOX, POINTING
from captioning.evaluation.grounding.measure import Captions
from captioning.inference.batches import captioned
from captioning.maps import known_maps
from captioning.numbers import Checked, TableImages
from captioning.progress_bar import stage

SCORES = {
    POINTING: POINTING,
    GAINS[POINTING]: "pointing minus Gaussian",
    IN_BOX: IN_BOX,
    "CHAIR-i": "CHAIR-i",
    "CHAIR-s": "CHAIR-s",
}
"""What is logged of a grounding report, with its name in the log."""


class ValidationGrounding(Checked, pl.Callback):
    """Logs grounding and hallucinations where validation images have objects with boxes.

    The model captions some of them and is asked as by `captioning ground`, without hiding regions:
    whether the map's maximum points at the object that a word names, also beyond what a Gaussian in
    the middle does; the map's mass in the box; and CHAIR, the shares of mentions and of captions
    that name what is not there (Rohrbach et al. 2018). What is undefined, such as pointing where
    no caption names anything, is left out.

    Args:
        images: how many images, taken evenly from the validation split; 0 for none.
        map: which map of a word is tested, by its name in `captioning.maps`; the one that the model
            shows if none.
    """

    def __init__(self, images: TableImages = 100, map: str | None = None) -> None:
        self.images = images
        self.maps = () if map is None else known_maps([map])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the scores, unless this is the check before training, or batches are tried out.

        Every process computes the same, so that any of them may decide by it.

        Raises:
            InputError: a photo cannot be read, or a mask cannot be decoded.
        """
        is_trial = trainer.sanity_checking or bool(getattr(trainer, "fast_dev_run", 0))
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if is_trial or not self.images or not _has_objects(data.val_records):
            return
        with stage("grounding captions"), torch.autocast(pl_module.device.type, enabled=False):
            found = self._summary(pl_module, data.val_records)
        for name, logged in SCORES.items():
            key = f"val/{logged}"
            trainer.callback_metrics.pop(key, None)  # an earlier epoch's, where it is undefined now
            if name in found:
                pl_module.log(key, found[name], sync_dist=True)

    def _summary(self, module: Any, records: list[Record]) -> dict[str, float]:
        """The scores of a grounding report of some of the records."""
        # With features computed before, a training may go on where its photos have gone.
        there = [record for record in records if record.image.exists()]
        chosen = there[:: max(1, len(there) // self.images)][: self.images]
        if not chosen:
            return {}
        captions: Captions = {
            record.image_id: _text(caption)
            for record, (_, caption) in zip(
                chosen,
                captioned(module.captioner, [record.image for record in chosen], progress=False),
                strict=True,
            )
        }
        reports = ground_maps(
            *(module.captioner, chosen, captions, Lexicon.of(categories(records))),
            batch_size=16,
            seed=0,
            maps=self.maps,
            hides_regions=False,
        )
        [report] = reports.values()
        return report.summary


def _has_objects(records: list[Record]) -> bool:
    """Whether there are boxes, and words may name them: not those of single captions' phrases."""
    return bool(categories(records)) and not any(record.phrases for record in records)


def _text(caption: Any) -> str:
    """The words of a caption.

    Raises:
        InputError: the photo could not be read.
    """
    if isinstance(caption, InputError):
        raise caption
    return str(caption.text)
