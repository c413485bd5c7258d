"""Where scores and pictures are logged: a CSV file and W&B."""

import csv
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import wandb
from PIL import Image
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from captioning.data.images import read_image
from captioning.errors import InputError, printable
from captioning.evaluation.grounding import GroundingReport
from captioning.files import written_whole
from captioning.progress_bar import say
from captioning.training.validation_images import Captioned, ValidationImages, scores_by_image
from captioning.viewing.overlay import DRAWN_SIDE
from captioning.viewing.viewer import viewer_html

STAGING_VARIABLE = "WANDB_DATA_DIR"
"""Environment variable of the folder where W&B stages files until they are uploaded."""

BOARD_ID = "wandb_id"
"""Key of a checkpoint for the id of its W&B run."""


def loggers(
    folder: Path, config: dict[str, Any], resume: bool, uploaded: ModelCheckpoint | None
) -> list[Logger]:
    """CSV and W&B in the run's folder; a resumed training begins another CSV, csv-2/metrics.csv.

    At the end, the best checkpoint of `uploaded` becomes an artifact of W&B.
    """
    earlier = len(list(folder.glob("csv*"))) if resume else 0
    table = CSVLogger(folder, name="", version=f"csv-{earlier + 1}" if earlier else "csv")
    options = wandb_options(config)
    if not options:
        return [table]
    # With Lightning's own `offline` W&B would ask for a login.
    name = os.environ.get("WANDB_NAME", folder.name)
    board = WandbLogger(name, folder, log_model=uploaded is not None, **options)
    if uploaded is not None:
        board.after_save_checkpoint(uploaded)  # though a resumed training may save no better one
    return [table, board]


def boards_of(trainer: pl.Trainer) -> list[WandbLogger]:
    """The training's W&B loggers."""
    return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]


def resume_board(trainer: pl.Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Continue the W&B run of a checkpoint, before anything is logged."""
    for board in boards_of(trainer):
        if checkpoint.get(BOARD_ID):
            board._id = board._wandb_init["id"] = checkpoint[BOARD_ID]


class ResumedLogs(pl.Callback):
    """Continues the W&B run of a resumed training, and logs every step once in its CSV files."""

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        for logger in trainer.loggers:
            logger.save()
        for board in boards_of(trainer):
            checkpoint[BOARD_ID] = str(board.version)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            for path in Path(trainer.default_root_dir).glob("csv*/metrics.csv"):
                keep_steps(path, trainer.global_step)


def keep_steps(path: Path, count: int) -> None:
    """Remove all but the whole rows of a CSV's first `count` steps."""
    lines = path.read_text().splitlines(keepends=True)
    reader = csv.DictReader(line for line in lines if line.endswith("\n"))
    rows = [row for row in reader if int(row["step"]) < count]
    if reader.fieldnames is None:  # killed within the header
        path.unlink()
    elif len(rows) < len(lines) - 1:
        with written_whole(path) as whole, whole.open("w", newline="") as file:
            writer = csv.DictWriter(file, reader.fieldnames)
            writer.writeheader()
            writer.writerows(rows)


def wandb_options(config: dict[str, Any]) -> dict[str, Any]:
    """The options of every W&B run; an empty dictionary if WANDB_MODE is ``disabled``.

    W&B's own variables, such as WANDB_PROJECT and WANDB_NAME, come before our defaults.
    If WANDB_MODE is not set, runs are online if the user has logged in, otherwise offline.

    Raises:
        InputError: WANDB_MODE has another value, or is ``online`` and nobody has logged in.
    """
    variable, mode = os.environ.get("WANDB_MODE"), "offline"
    if variable == "disabled":
        return {}
    if variable in (None, "online"):
        # Otherwise W&B warns of a setting that Lightning passes on.
        wandb.setup(wandb.Settings(show_warnings=False))
        if wandb.login(prompt=False, verify=False):
            mode = "online"
        elif variable:
            raise InputError("WANDB_MODE is online, but nobody has logged in; run `wandb login`")
    elif variable not in ("offline", "dryrun"):  # the older name, which Lightning's logger sets
        raise InputError(f"WANDB_MODE is {variable!r}; give online, offline or disabled")
    settings = wandb.Settings(silent=mode == "offline")
    project = os.environ.get("WANDB_PROJECT", "captioning")
    return {"project": project, "mode": mode, "config": config, "settings": settings}


@contextmanager
def without_offline_board() -> Iterator[None]:
    """Log no W&B run in the block, unless WANDB_MODE is set or the user has logged in."""
    wandb.setup(wandb.Settings(show_warnings=False))
    if "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False):
        yield
        return
    os.environ["WANDB_MODE"] = "disabled"
    try:
        yield
    finally:
        del os.environ["WANDB_MODE"]


@contextmanager
def wandb_within(folder: Path) -> Iterator[None]:
    """Stage files of W&B's run within a folder, not at home, and end the run with the block.

    The staged files of an online run have been uploaded by then, and are removed.
    """
    user_folder, staging = os.environ.get(STAGING_VARIABLE), (folder / "wandb" / "data").absolute()
    os.environ[STAGING_VARIABLE] = user_folder or str(staging)
    try:
        yield
    finally:
        if (run := wandb.run) is not None:
            run.finish()
            if run.offline:  # by its id, as a resumed run has several folders
                pattern = Path(run.dir).parents[1] / f"offline-run-*-{run.id}"
                command = printable(f"wandb sync {pattern}")
                say(f"W&B kept this run offline; to upload it: {command}")
            else:
                shutil.rmtree(staging, ignore_errors=True)
        if user_folder is None:
            del os.environ[STAGING_VARIABLE]


@dataclass(eq=False)
class ValidationTable(ValidationImages):
    """Logs a W&B table of the same validation images after every validation.

    A row has the photo, the references, the caption, the scores, the interactive view, and a figure
    of all words with their maps. The figures are also logged as ``val/overlay/0`` and so on, which
    W&B shows with a slider over the steps.

    Args:
        images: number of images, evenly spaced in the validation split; 0 for no table.
        maps: maps of each word, by their names in `captioning.maps`; by default the model's
            default map. The figures show the first one, the interactive view compares them.
    """

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if boards_of(trainer):
            super().on_validation_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if boards_of(trainer):
            super().on_validation_end(trainer, pl_module)

    def show(self, trainer: pl.Trainer, module: Any, images: list[Captioned]) -> None:
        scores, rows = scores_by_image(module), []
        for record, caption in images:
            photo = read_image(record.image, module.captioner.preprocessing.max_pixels)
            page = viewer_html(photo, [caption.view()], record.image.name, DRAWN_SIDE)
            png = BytesIO()
            caption.figure(photo=photo).savefig(png, format="png", dpi=100)
            picture = Image.open(png).convert("RGB")
            figure = wandb.Image(picture, file_type="jpg", caption=caption.text)
            thumbnail = photo.copy()
            thumbnail.thumbnail((DRAWN_SIDE, DRAWN_SIDE))
            rows.append(
                [
                    wandb.Image(thumbnail, file_type="jpg"),  # a tenth of a PNG's bytes
                    "\n".join(record.captions),
                    caption.text,
                    *(image_scores.get(record.image_id) for image_scores in scores.values()),
                    # W&B's style sheet would come from its server, which the page forbids.
                    wandb.Html(page, inject=False, data_is_not_path=True),
                    figure,
                ]
            )
        columns = ["image", "references", "caption", *scores, "view", "overlay"]
        overlays: Any = {f"val/overlay/{number}": row[-1] for number, row in enumerate(rows)}
        for board in boards_of(trainer):
            board.log_table("val/captions", columns, rows, step=trainer.global_step)
            board.log_metrics(overlays, step=trainer.global_step)


def log_grounding(
    report: GroundingReport, pictures: Sequence[Path], folder: Path, config: dict[str, Any]
) -> None:
    """Log a grounding report and PNG files as a separate run, unless WANDB_MODE is disabled.

    The run is written to the folder, and named after it.
    """
    options = wandb_options(config)
    if not options:
        return
    names, groups = list(report.scores), {"all": report} | report.words
    rows = [[word, len(group.mentions), *map(group.value, names)] for word, group in groups.items()]
    with wandb_within(folder):
        run_name = os.environ.get("WANDB_NAME", folder.absolute().name)
        wandb.init(name=run_name, job_type="grounding", dir=folder, **options).log(
            {f"grounding/{name}": value for name, value in report.summary.items()}
            | {"grounding/words": wandb.Table(["word", "mentions", *names], rows)}
            | {f"grounding/{path.stem}": wandb.Image(str(path)) for path in pictures}
        )
