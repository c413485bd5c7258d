"""What the model says, and where it looks, about the same few images after every epoch."""

from typing import Any

import pytorch_lightning as pl
import torch
import wandb
from pytorch_lightning.loggers import WandbLogger

from captioning.data.images import read_image
from captioning.viewing.overlay import word_pictures


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
        records = datamodule.val_records
        records = records[:: max(1, len(records) // self.images)][: self.images]
        table = self._table(pl_module, records)
        for board in boards:
            board.experiment.log({"val/captions": table, "epoch": trainer.current_epoch})

    def _table(self, module: Any, records: list[Any]) -> wandb.Table:
        photos = [read_image(record.image) for record in records]
        with torch.autocast(module.device.type, enabled=False):
            captions = module.captioner.caption(photos)
        words = max(len(caption.words) for caption in captions)
        columns: list[str | int] = [
            "image",
            "references",
            "caption",
            *(f"word {i + 1}" for i in range(words)),
        ]
        table = wandb.Table(columns=columns)
        for photo, caption, record in zip(photos, captions, records, strict=True):
            overlays = [wandb.Image(picture) for picture in word_pictures(photo, caption)]
            rest = [None] * (words - len(overlays))
            references = "\n".join(record.captions)
            table.add_data(wandb.Image(photo), references, caption.text, *overlays, *rest)
        return table
