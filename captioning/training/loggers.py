"""Where scores are written: a CSV file and W&B."""

import csv
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
import wandb
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport
from captioning.files import written_whole
from captioning.progress_bar import say
from captioning.terminal import printable
from captioning.training.checkpoints import BestCheckpoint

DATA = "WANDB_DATA_DIR"
"""Where W&B stages the files of tables and artifacts until they are uploaded."""

BOARD_ID = "wandb_id"
"""Where a checkpoint has the id of its W&B run."""


def loggers(folder: Path, config: dict[str, Any], resume: bool) -> list[Logger]:
    """CSV and W&B in the run's folder; a resumed training begins another CSV, csv-2/metrics.csv."""
    earlier = len(list(folder.glob("csv*"))) if resume else 0
    table = CSVLogger(folder, name="", version=f"csv-{earlier + 1}" if earlier else "csv")
    mode = wandb_mode()
    if mode == "disabled":
        return [table]
    board = WandbLogger(
        project="captioning",
        name=folder.name,
        save_dir=folder,
        mode=mode,  # Lightning's own `offline` comes too late: W&B has asked for a login by then
        config=config,
        settings=wandb.Settings(silent=mode == "offline"),
    )
    return [table, board]


def resume_board(trainer: pl.Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Continue the W&B run of a checkpoint, before anything is logged."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger) and checkpoint.get(BOARD_ID):
            logger._id = logger._wandb_init["id"] = checkpoint[BOARD_ID]


class ResumedLogs(pl.Callback):
    """Lets a resumed training go on in its W&B run, and keeps every step once in its CSV files.

    An ended training may have logged steps after its last checkpoint, which are then repeated.
    """

    def __init__(self) -> None:
        self._board_id: str | None = None

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write what has been logged so far, and store the id of the W&B run."""
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, WandbLogger):
                self._board_id = str(logger.version)
        checkpoint[BOARD_ID] = self._board_id

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the run's id, which W&B may not be there to know."""
        self._board_id = checkpoint.get(BOARD_ID)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the steps that are about to be repeated."""
        if trainer.is_global_zero:
            for path in Path(trainer.default_root_dir).glob("csv*/metrics.csv"):
                keep_steps(path, trainer.global_step)


def keep_steps(path: Path, count: int) -> None:
    """Keep a CSV's first `count` steps, in whole rows."""
    lines = path.read_text().splitlines(keepends=True)
    reader = csv.DictReader(line for line in lines if line.endswith("\n"))
    kept = [row for row in reader if int(row["step"]) < count]
    if reader.fieldnames is None:  # killed within the header
        path.unlink()
    elif len(kept) < len(lines) - 1:
        with written_whole(path) as whole, whole.open("w", newline="") as file:
            writer = csv.DictWriter(file, reader.fieldnames)
            writer.writeheader()
            writer.writerows(kept)


def wandb_mode() -> str:
    """The environment variable WANDB_MODE; if unset, online for users who have logged in.

    Raises:
        InputError: WANDB_MODE is something else, or online while nobody has logged in.
    """
    wanted = os.environ.get("WANDB_MODE")
    if wanted == "dryrun":  # an older name, which Lightning's own logger sets where it is offline
        wanted = "offline"
    if wanted not in (None, "online", "offline", "disabled"):
        raise InputError(f"WANDB_MODE is {wanted!r}; give online, offline or disabled, or unset it")
    if wanted == "disabled":
        return wanted
    # Otherwise W&B warns of a setting that Lightning passes on.
    wandb.setup(wandb.Settings(show_warnings=False))
    if wanted != "offline" and wandb.login(prompt=False, verify=False):
        return "online"
    if wanted == "online":
        raise InputError(
            "WANDB_MODE is online, but nobody has logged in; run `wandb login`, "
            "or unset WANDB_MODE to keep the run on this disk"
        )
    return "offline"


@contextmanager
def wandb_within(folder: Path) -> Iterator[None]:
    """Keep staged files of W&B's run out of the home folder, and end the run with the block.

    Those of an online run are removed then, as they have been uploaded.
    """
    given, within = os.environ.get(DATA), (folder / "wandb" / "data").absolute()
    os.environ[DATA] = given or str(within)
    try:
        yield
    finally:
        if wandb.run is not None:
            run = wandb.run
            run.finish()
            if run.offline:  # by its id, as a resumed run has several folders
                parts = Path(run.dir).parents[1] / f"offline-run-*-{run.id}"
                say(f"W&B kept this run offline; to upload it: {printable(f'wandb sync {parts}')}")
            else:
                shutil.rmtree(within, ignore_errors=True)
        if given is None:
            del os.environ[DATA]


def log_best(trainer: pl.Trainer, best: BestCheckpoint, settings: Mapping[str, Any]) -> None:
    """Log best.ckpt as an artifact of the W&B run, with the aliases best, latest and epoch-N.

    An offline run keeps a copy in its own folder: a longer training may replace best.ckpt before
    anybody uploads the run.

    Args:
        trainer: after its training.
        best: the callback that wrote it.
        settings: the configuration, whose model is part of the artifact's metadata.
    """
    path = Path(best.best_model_path)
    boards = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
    if not boards or not trainer.is_global_zero or not path.is_file():
        return
    saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    epoch, score = saved["epoch"] + 1, best.best_model_score
    metadata = {
        "monitor": best.monitor,
        "score": None if score is None else score.item(),
        "epoch": epoch,
        "step": saved["global_step"],
        "seed": settings["seed_everything"],
        "model": settings["model"],
    }
    for board in boards:
        run = board.experiment
        artifact = wandb.Artifact(f"model-{run.id}", "model", metadata=metadata)
        kept = shutil.copy(path, Path(run.dir).parent) if run.offline else path
        # Immutable: not copied to the staging files. Not cached: no copy in the home folder.
        artifact.add_file(str(kept), path.name, policy="immutable", skip_cache=True)
        run.log_artifact(artifact, aliases=["best", "latest", f"epoch-{epoch}"])


def log_grounding(
    report: GroundingReport, pictures: Sequence[Path], folder: Path, config: dict[str, Any]
) -> None:
    """Log a grounding report as a run of its own, unless WANDB_MODE is disabled.

    Args:
        report: scores, with a row per word.
        pictures: PNG files.
        folder: where the run is kept on this disk, and what it is named after.
        config: what W&B shows as the run's configuration.
    """
    mode = wandb_mode()
    if mode == "disabled":
        return
    with wandb_within(folder):
        run = wandb.init(
            project="captioning",
            name=folder.absolute().name,
            job_type="grounding",
            dir=folder,
            mode=cast("Any", mode),
            config=config,
            settings=wandb.Settings(silent=mode == "offline"),
        )
        names = list(report.all.scores)
        rows = [
            [group.name, group.count, *(group.value(name) for name in names)]
            for group in (report.all, *report.words)
        ]
        run.log(
            {f"grounding/{name}": value for name, value in report.summary.items()}
            | {"grounding/words": wandb.Table(["word", "mentions", *names], rows)}
            | {f"grounding/{path.stem}": wandb.Image(str(path)) for path in pictures}
        )
