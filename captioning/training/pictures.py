"""A W&B table of what the model says, and where it looks, about the same few images."""

from typing import Any

import pytorch_lightning as pl
import wandb
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from captioning.captioner import Caption
from captioning.maps import ATTENTION
from captioning.training.fixed_images import FixedImage, ShowsFixedImages, scores_by_image
from captioning.viewing import viewer
from captioning.viewing.overlay import LONG_SIDE, word_pictures


class ValidationTable(ShowsFixedImages):
    """Logs a W&B table of fixed validation images, and how the scores of all of them spread.

    A row has the photo, its references, the caption, its scores, the interactive view of its
    attention and one overlay per word.

    Args:
        images: how many images, taken evenly from the validation split; 0 for no table.
        maps: the maps of each word by their names in `captioning.maps`, in place of attention: the
            overlays show the first, and the interactive view lets one compare them.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Log the table, unless this is the check before training or W&B is not in use."""
        boards = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if not boards or not self.images or trainer.sanity_checking or not trainer.is_global_zero:
            return
        scores = scores_by_image(pl_module)
        images = self.fixed_images(trainer, pl_module)
        columns, rows = _table(images, list(scores))
        spread: dict[str, Any] = {
            f"val/{name} of images": wandb.Histogram(list(by_image.values()))
            for name, by_image in scores.items()
        }
        for board in boards:
            board.log_table("val/captions", columns, rows, step=trainer.global_step)
            board.log_metrics(spread, step=trainer.global_step)


def _table(images: list[FixedImage], scores: list[str]) -> tuple[list[str], list[list[Any]]]:
    """The names of the columns, and a row for each image."""
    words = max((len(image.caption.words) for image in images), default=0)
    rows = []
    for image in images:
        photo, caption = image.photo(), image.caption
        overlays = [_logged(picture) for picture in word_pictures(photo, caption)]
        rest = [None] * (words - len(overlays))
        references = "\n".join(image.record.captions)
        its_scores = [image.scores.get(name) for name in scores]
        views = [_view(photo, caption, image.record.image.name), *overlays, *rest]
        rows.append([_logged(photo), references, caption.text, *its_scores, *views])
    names = {image.caption.map_name for image in images} - {ATTENTION}
    columns = [", ".join([f"word {number + 1}", *names]) for number in range(words)]
    return ["image", "references", "caption", *scores, "view", *columns], rows


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
