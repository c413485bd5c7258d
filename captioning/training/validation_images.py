"""Callbacks that show the same images after every validation, and log their grounding scores."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import distributed

from captioning.captioner import Caption, Captioner
from captioning.data.images import read_image
from captioning.data.records import Record
from captioning.evaluation.grounding import Lexicon, categories, ground
from captioning.maps import resolve_map_names
from captioning.progress_bar import stage
from captioning.training.checkpoints import LAST, BestCheckpoint
from captioning.viewing.html_document import save_html
from captioning.viewing.validation_page import (
    PastCaption,
    Point,
    TrackedImage,
    epoch_text,
    validation_html,
)

PAGE = "validation.html"

IMAGE_SCORES = ("BLEU-4", "ROUGE-L", "CIDEr")
"""Scores that are shown for each image."""

GROUNDING_SCORES = {
    "pointing": "pointing",
    "mass in box": "mass in box",
    "CHAIR-i": "CHAIR-i",
    "CHAIR-s": "CHAIR-s",
    "pointing, minus Gaussian": "pointing minus Gaussian",
}
"""Scores of a grounding report that are logged, with their names in the log."""

Captioned = tuple[Record, Caption]
"""A validation image with its references, and its latest caption."""

ValidatedCaptions = dict[int | str, list[int]]
"""The caption of each image of a validation, as word ids by image id."""


def captioned(
    trainer: pl.Trainer, module: Any, token_ids: ValidatedCaptions, count: int, **options: Any
) -> list[Captioned]:
    """Evenly spaced images of a validation, with the captions that were scored and their maps.

    Missing photos are left out, as trainings on cached features do not need them.
    """
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    records = [record for record in data.val_records if record.image_id in token_ids]
    records = records[:: max(1, len(records) // count)][:count]
    tokens = [token_ids[record.image_id] for record in records]
    with (
        stage("reading the captions to show"),
        torch.autocast(module.device.type, enabled=False),
        torch.inference_mode(False),  # some maps take gradients
    ):
        photos = [record.image for record in records]
        captions = module.captioner.stream(photos, tokens=tokens, **options)
        pairs = list(zip(records, captions, strict=True))
    return [(record, caption) for record, caption in pairs if isinstance(caption, Caption)]


def gathered_captions(module: Any) -> ValidatedCaptions:
    """The captions of a validation, gathered from all processes, which all must call this."""
    parts: list[ValidatedCaptions] = [module.validated_captions]
    if distributed.is_initialized():
        parts *= distributed.get_world_size()
        distributed.all_gather_object(parts, module.validated_captions)
    captions: ValidatedCaptions = {}
    for part in reversed(parts):  # of an image in several parts, the first caption counts
        captions.update(part)
    return captions


@dataclass(eq=False)
class ValidationImages(pl.Callback):
    """Base of callbacks that show the same images after every validation.

    Captions and maps are computed when the validation epoch ends, with the weights that were
    validated: averaged weights are swapped out before `on_validation_end`.
    """

    images: int = 8
    maps: list[str] | None = None

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        resolve_map_names(self.maps or (), pl_module.model)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not self.images or trainer.sanity_checking:
            return
        token_ids = gathered_captions(pl_module)
        if not trainer.is_global_zero:
            return
        maps = self.maps or [pl_module.captioner.default_map]
        key = trainer.global_step, self.images, maps
        if getattr(pl_module, "shown", (None,))[0] != key:  # callbacks share equal captions
            options = {"runners_up": 3, "maps": maps}
            pl_module.shown = key, captioned(trainer, pl_module, token_ids, self.images, **options)
        self._shown = pl_module.shown[1]

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.images and not trainer.sanity_checking and trainer.is_global_zero:
            self.show(trainer, pl_module, self._shown)

    def show(self, trainer: pl.Trainer, module: Any, images: list[Captioned]) -> None:
        """Show the images, with their captions and maps, after a validation."""
        raise NotImplementedError


def scores_by_image(module: Any) -> dict[str, dict[int | str, float]]:
    """The scores of the last validation by name and image id."""
    by_image = module.scores.by_image
    return {name: by_image[name] for name in IMAGE_SCORES if name in by_image}


def save_page(
    run_folder: Path,
    summary: str,
    losses: Sequence[Point],
    validations: Sequence[Mapping[str, Any]],
    images: Sequence[Captioned],
    max_pixels: int,
    best: tuple[str, float] | None = None,
) -> None:
    """Write validation.html into a run's folder.

    Args:
        run_folder: the folder.
        summary: one line about the training.
        losses: the mean loss of each epoch.
        validations: scores and captions of each validation, as `ValidationPage` stores them.
        images: the images, with the captions to show.
        max_pixels: of a photo.
        best: the score that decides which epoch is best, and the best epoch.
    """
    curves: defaultdict[str, list[Point]] = defaultdict(list)
    histories: defaultdict[Any, list[PastCaption]] = defaultdict(list)
    for validation in validations:
        for name, score in validation["scores"].items():
            curves[name].append(Point(validation["epoch"], score))
        for image in validation["images"]:
            caption = PastCaption(validation["epoch"], image["caption"], image["scores"])
            histories[image["image"]].append(caption)
    path = run_folder.absolute() / PAGE
    with stage(f"writing {PAGE}"):
        tracked_images = [
            TrackedImage(
                record.image.name,
                read_image(record.image, max_pixels),
                caption.view(),
                record.captions,
                histories[record.image_id],
            )
            for record, caption in images
        ]
        page = validation_html(path.parent.name, summary, losses, curves, tracked_images, best)
        save_html(page, path)


def save_kept_page(
    run_folder: Path, captioner: Captioner, records: Sequence[Record], model_text: str
) -> None:
    """Write validation.html of a finished training, with the captions of the model that is kept.

    Args:
        run_folder: the training's, with its last checkpoint.
        captioner: the model that is kept.
        records: the images to validate on.
        model_text: a phrase for that model.
    """
    content = torch.load(run_folder / LAST, map_location="cpu", weights_only=True)
    state = content["callbacks"][ValidationPage.__qualname__]
    if not state["validations"]:
        return
    record_by_id = {record.image_id: record for record in records}
    shown = [record_by_id[image["image"]] for image in state["validations"][-1]["images"]]
    maps = [captioner.default_map]
    captions = captioner.stream([record.image for record in shown], runners_up=3, maps=maps)
    pairs = zip(shown, captions, strict=True)
    save_page(
        run_folder,
        f"Captions are by {model_text}: {state['counts']}",
        [Point(*point) for point in state["losses"]],
        state["validations"],
        [(record, caption) for record, caption in pairs if isinstance(caption, Caption)],
        captioner.preprocessing.max_pixels,
    )


@dataclass(eq=False)
class ValidationPage(ValidationImages):
    """Writes validation.html into the run's folder: curves, and captions of the same images.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for no page.
        maps: maps of each word, by their names in `captioning.maps`; by default the model's
            default map. The first one is shown at first, others can be selected or compared with
            it.
    """

    _losses: list[Point] = field(init=False, default_factory=list)
    _validations: list[dict[str, Any]] = field(init=False, default_factory=list)
    _is_best: bool = field(init=False, default=False)
    _counts: str = field(init=False, default="")  # of images
    _loss: Any = field(init=False, default=0.0)  # a tensor after the first step
    _steps: int = field(init=False, default=0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "losses": [list(point) for point in self._losses],
            "validations": list(self._validations),
            "counts": self._counts,
            "loss": float(self._loss),
            "steps": self._steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._losses = [Point(*point) for point in state_dict["losses"]]
        self._validations = list(state_dict["validations"])
        self._counts = state_dict.get("counts", "")
        self._loss, self._steps = state_dict["loss"], state_dict["steps"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._loss += outputs["loss"].detach()  # stays on its device: reading it would wait
        self._steps += 1

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._steps:
            mean = float(self._loss) / self._steps
            self._losses.append(Point(float(trainer.current_epoch + 1), mean))
        self._loss, self._steps = 0.0, 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:  # asked in all processes, which have to agree
            best = next(
                callback
                for callback in trainer.checkpoint_callbacks
                if type(callback) is BestCheckpoint
            )
            score = trainer.callback_metrics.get(str(best.monitor))
            self._monitor = str(best.monitor).removeprefix("val/")
            self._is_best = best.check_monitor_top_k(trainer, score)
        super().on_validation_end(trainer, pl_module)

    def show(self, trainer: pl.Trainer, module: Any, images: list[Captioned]) -> None:
        progress = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch + progress / trainer.num_training_batches
        self._add_validation(trainer, module, images, epoch)
        losses = list(self._losses)
        if self._steps:
            losses.append(Point(epoch, float(self._loss) / self._steps))
        best = None
        for validation in self._validations:
            if validation.get("is_kept"):
                best = self._monitor, validation["epoch"]
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        train_count, val_count = len(data.train_records), len(data.val_records)
        self._counts = f"{train_count:,} images to train on, {val_count:,} to validate"
        save_page(
            Path(trainer.default_root_dir),
            f"After epoch {epoch_text(epoch)}: {self._counts}",
            losses,
            self._validations,
            images,
            module.captioner.preprocessing.max_pixels,
            best,
        )

    def _add_validation(
        self, trainer: pl.Trainer, module: Any, images: list[Captioned], epoch: float
    ) -> None:
        """Store the scores and captions of a validation as plain values, for checkpoints."""
        captions = []
        for record, caption in images:
            image_id = record.image_id
            scores: dict[str, float] = {}
            for name, image_scores in scores_by_image(module).items():
                if image_id in image_scores:
                    scores[name] = image_scores[image_id]
            captions.append({"image": image_id, "caption": caption.text, "scores": scores})
        metrics = {}
        for name, value in trainer.callback_metrics.items():
            if name.startswith("val/"):
                metrics[name.removeprefix("val/")] = value.item()
        self._validations.append(
            {"epoch": epoch, "scores": metrics, "images": captions, "is_kept": self._is_best}
        )


@dataclass(eq=False)
class ValidationGrounding(pl.Callback):
    """Logs pointing accuracy and hallucinations, if validation images have objects with boxes.

    The scores are those of `captioning ground`: whether a map's maximum is inside the box of the
    object that the word names, also in excess of a centred Gaussian; its mass in the box; and CHAIR
    (Rohrbach et al. 2018), the shares of mentions and captions that name an absent object.
    Undefined ones are left out, such as pointing if no caption names an object.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for none.
        map: which map of a word is scored, by its name in `captioning.maps`; by default the
            model's default map.
    """

    images: int = 100
    map: str | None = None

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        self._maps = resolve_map_names([self.map] if self.map else (), pl_module.model)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # Every process computes the same scores, since any of them may be monitored.
        if not self.images or trainer.sanity_checking:
            return
        token_ids = gathered_captions(pl_module)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        names = categories(data.val_records)
        # Boxes of single captions' phrases are not of object categories.
        if not names or any(record.phrases for record in data.val_records):
            return
        images = captioned(trainer, pl_module, token_ids, self.images)
        if not images:
            return
        with stage("grounding captions"), torch.autocast(pl_module.device.type, enabled=False):
            [report] = ground(
                pl_module.captioner,
                [record for record, _ in images],
                {record.image_id: caption.text for record, caption in images},
                Lexicon.of(names),
                maps=self._maps,
                drops=False,
            ).values()
        for name, logged in GROUNDING_SCORES.items():
            key = f"val/{logged}"
            trainer.callback_metrics.pop(key, None)  # an earlier epoch's, if undefined now
            if name in report.summary:
                pl_module.log(key, report.summary[name], sync_dist=True)
