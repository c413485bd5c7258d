"""What the model says, and where it looks, about the same few images after every epoch."""

from typing import Any

import pytorch_lightning as pl
import torch
import wandb
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from captioning.captioner import Caption
from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.numbers import Checked, TableImages
from captioning.viewing import viewer
from captioning.viewing.overlay import LONG_SIDE, word_pictures

SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""The scores of single images that are logged."""

RUNNERS_UP = 3
"""Other words that the interactive view tells of each word."""


class ValidationTable(Checked, pl.Callback):
    """Logs a W&B table of fixed validation images, and how the scores of all of them spread.

    A row has the photo, its references, the caption, its scores, the interactive view of its
    attention and one overlay per word.

    Args:
        images: how many images, taken evenly from the validation split; 0 for no table.
    """

    def __init__(self, images: TableImages = 8) -> None:
        self.images = images

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the table, unless this is the check before training or W&B is not in use."""
        boards = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if not boards or not self.images or trainer.sanity_checking or not trainer.is_global_zero:
            return
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        columns, rows = self._table(pl_module, self._fixed(datamodule.val_records))
        spread: dict[str, Any] = {
            f"val/{name} of images": wandb.Histogram(list(by_image.values()))
            for name, by_image in _scores(pl_module).items()
        }
        for board in boards:
            board.log_table("val/captions", columns, rows, step=trainer.global_step)
            board.log_metrics(spread, step=trainer.global_step)

    def _fixed(self, records: list[Record]) -> list[Record]:
        # With features computed before, a training may go on where its photos have gone.
        there = [record for record in records if record.image.exists()]
        return there[:: max(1, len(there) // self.images)][: self.images]

    def _table(self, module: Any, records: list[Record]) -> tuple[list[str], list[list[Any]]]:
        """The names of the columns, and a row for each record."""
        limit = module.captioner.preprocessing.max_pixels
        photos = [read_image(record.image, limit) for record in records]
        with torch.autocast(module.device.type, enabled=False):
            captions = module.captioner.caption(photos, runners_up=RUNNERS_UP)
        words = max((len(caption.words) for caption in captions), default=0)
        scores = _scores(module)
        rows = []
        for photo, caption, record in zip(photos, captions, records, strict=True):
            overlays = [_logged(picture) for picture in word_pictures(photo, caption)]
            rest = [None] * (words - len(overlays))
            references = "\n".join(record.captions)
            its_scores = [by_image.get(record.image_id) for by_image in scores.values()]
            views = [_view(photo, caption, record.image.name), *overlays, *rest]
            rows.append([_logged(photo), references, caption.text, *its_scores, *views])
        names = [f"word {number + 1}" for number in range(words)]
        return ["image", "references", "caption", *scores, "view", *names], rows


def _scores(module: Any) -> dict[str, dict[int | str, float]]:
    """The scores of the last validation by name and image id."""
    found = {
        name: by_image
        for metric in module.scores.values()
        for name, by_image in metric.by_image.items()
    }
    return {name: found[name] for name in SCORES}


def _view(photo: Image.Image, caption: Caption, title: str) -> wandb.Html:
    """The interactive view, with the photo at the size of an overlay."""
    page = viewer.html(photo, [caption], title, LONG_SIDE)
    # W&B's own style sheet would come from its server, which the page forbids.
    return wandb.Html(page, inject=False, data_is_not_path=True)


def _logged(picture: Image.Image) -> wandb.Image:
    """The picture at the size of an overlay, as JPEG: a tenth of a PNG, a hundred a validation."""
    small = picture.copy()
    small.thumbnail((LONG_SIDE, LONG_SIDE))
    return wandb.Image(small, file_type="jpg")
