"""Where scores are written: a CSV file and W&B."""

import csv
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import wandb
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport
from captioning.files import written_whole
from captioning.terminal import printable

DATA = "WANDB_DATA_DIR"

LAST_STEP = "last_step"
"""Where a checkpoint has the metrics of its last step."""


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


class EveryStepOnce(pl.Callback):
    """Keeps every step once in a run's CSV files, even if it is killed and resumed.

    A killed training may have logged steps after its last checkpoint, which are then repeated. It
    may also lack one step: within an epoch, a checkpoint is written before its step is logged.
    """

    def __init__(self) -> None:
        self._last_step: dict[str, float] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write what has been logged so far, and store the last step's metrics."""
        for logger in trainer.loggers:
            logger.save()
        checkpoint[LAST_STEP] = {
            name: value.item()
            for name, value in trainer.logged_metrics.items()
            if name.startswith("train/")
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the last step's metrics."""
        self._last_step = checkpoint[LAST_STEP]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the steps that are about to be repeated, and add the last one if it is missing."""
        if not trainer.is_global_zero:
            return
        steps, every = trainer.global_step, cast("Any", trainer).log_every_n_steps
        logged: set[int] = set()
        for path in Path(trainer.default_root_dir).glob("csv*/metrics.csv"):
            logged |= keep_steps(path, steps, set(self._last_step))
        if self._last_step and every and steps % every == 0 and steps - 1 not in logged:
            for logger in trainer.loggers:
                row = {"epoch": trainer.current_epoch, **self._last_step}
                logger.log_metrics(row, step=steps - 1)


def keep_steps(path: Path, count: int, names: Collection[str] = ()) -> set[int]:
    """Keep a CSV's first `count` steps in whole rows; returns those with all metrics in `names`."""
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
    return {int(row["step"]) for row in kept if all(row.get(name) for name in names)}


def wandb_mode() -> str:
    """The environment variable WANDB_MODE; if unset, online for users who have logged in.

    Raises:
        InputError: WANDB_MODE is something else, or online while nobody has logged in.
    """
    wanted = os.environ.get("WANDB_MODE")
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
    """Keep the pictures of W&B's run out of the home folder, and end the run with the block."""
    given = os.environ.get(DATA)
    os.environ[DATA] = given or str((folder / "wandb" / "data").absolute())
    try:
        yield
    finally:
        run = wandb.run
        if run is not None:
            run.finish()
            if run.offline:
                command = printable(f"wandb sync {Path(run.dir).parent}")
                print(f"W&B kept this run offline; to upload it: {command}", file=sys.stderr)
        if given is None:
            del os.environ[DATA]


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
            [group.name, group.looks, *(group.value(name) for name in names)]
            for group in (report.all, *report.words)
        ]
        run.log(
            {f"grounding/{name}": value for name, value in report.summary.items()}
            | {"grounding/words": wandb.Table(["word", "mentions", *names], rows)}
            | {f"grounding/{path.stem}": wandb.Image(str(path)) for path in pictures}
        )
