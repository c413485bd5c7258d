"""What the model says, and where it looks, about the same few images after every epoch."""

from typing import Any

import pytorch_lightning as pl
import torch
import wandb
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.viewing.overlay import LONG_SIDE, word_pictures


class ValidationTable(pl.Callback):
    """Logs a W&B table of fixed validation images: references, caption, one overlay per word.

    Args:
        images: how many images, taken evenly from the validation split; 0 for no table.
    """

    def __init__(self, images: int = 8) -> None:
        self.images = images

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the table, unless this is the check before training or W&B is not in use."""
        boards = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if not boards or not self.images or trainer.sanity_checking or not trainer.is_global_zero:
            return
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        columns, rows = self._table(pl_module, self._fixed(datamodule.val_records))
        for board in boards:
            board.log_table("val/captions", columns, rows, step=trainer.global_step)

    def _fixed(self, records: list[Record]) -> list[Record]:
        # With features computed before, a training may go on where its photos have gone.
        there = [record for record in records if record.image.exists()]
        return there[:: max(1, len(there) // self.images)][: self.images]

    def _table(self, module: Any, records: list[Record]) -> tuple[list[str], list[list[Any]]]:
        """The names of the columns, and a row for each record."""
        photos = [read_image(record.image) for record in records]
        with torch.autocast(module.device.type, enabled=False):
            captions = module.captioner.caption(photos)
        words = max((len(caption.words) for caption in captions), default=0)
        rows = []
        for photo, caption, record in zip(photos, captions, records, strict=True):
            overlays = [_logged(picture) for picture in word_pictures(photo, caption)]
            rest = [None] * (words - len(overlays))
            references = "\n".join(record.captions)
            rows.append([_logged(photo), references, caption.text, *overlays, *rest])
        return ["image", "references", "caption", *(f"word {i + 1}" for i in range(words))], rows


def _logged(picture: Image.Image) -> wandb.Image:
    """The picture at the size of an overlay, as JPEG: a tenth of a PNG, a hundred a validation."""
    small = picture.copy()
    small.thumbnail((LONG_SIDE, LONG_SIDE))
    return wandb.Image(small, file_type="jpg")
