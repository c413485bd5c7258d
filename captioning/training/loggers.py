"""Where scores are written: a CSV file, and W&B."""

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import wandb
from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from captioning.errors import InputError, as_input_error
from captioning.files import written_whole
from captioning.terminal import printable

LAST_STEP = "last_step"
"""Where a checkpoint has the metrics of its last step."""

MODES = ("online", "offline", "disabled")
DATA = "WANDB_DATA_DIR"


def loggers(folder: Path, config: dict[str, Any], resume: bool) -> list[Logger]:
    """CSV, and W&B: online for those who have logged in, offline for others.

    The environment variable WANDB_MODE (online, offline, disabled) has the last word.

    Args:
        folder: the run's folder.
        config: what W&B shows as the run's configuration.
        resume: keep the CSV of the training so far, and begin a further one, csv-2/metrics.csv.

    Raises:
        InputError: W&B shall be online, but nobody has logged in.
    """
    earlier = len(list(folder.glob("csv*"))) if resume else 0
    table = MetricsTable(folder, name="", version=f"csv-{earlier + 1}" if earlier else "csv")
    mode = wandb_mode()
    if mode == "disabled":
        return [table]
    settings = wandb.Settings(silent=mode == "offline")
    board = WandbLogger(
        project="captioning",
        name=folder.name,
        save_dir=folder,
        mode=mode,  # Lightning's own `offline` comes too late where W&B has been asked for a login
        config=config,
        settings=settings,
    )
    return [table, board]


class MetricsTable(CSVLogger):
    """Lightning's CSV of metrics, of which a kill or a full disk loses no earlier row."""

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """What writes the rows."""
        if self._experiment is None:
            self._experiment = _WholeRows(self.log_dir)
        return self._experiment


class _WholeRows(ExperimentWriter):
    def save(self) -> None:
        """Append the rows since the last call; all of them, or none where the disk is full.

        Raises:
            InputError: the file cannot be written.
        """
        path = Path(self.metrics_file_path)
        before = path.stat().st_size if path.exists() else 0
        try:
            super().save()
        except OSError as error:
            if path.exists():
                os.truncate(path, before)
            raise as_input_error(error, path, "cannot be written") from None

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        path = Path(self.metrics_file_path)
        _write_table(path, list(csv.DictReader(path.read_text().splitlines())), fieldnames)


class EveryStepOnce(pl.Callback):
    """Sees to it that a run's CSVs have every step once, however often it was killed and resumed.

    A killed training may have written more steps than its last checkpoint knows of, and one step
    less: within an epoch a checkpoint is written before Lightning logs its last step.
    """

    def __init__(self) -> None:
        self._last_step: dict[str, float] = {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write what is logged so far, and keep the last step's metrics with the checkpoint."""
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
        """Remember the last step's metrics."""
        self._last_step = checkpoint.get(LAST_STEP, {})  # none by earlier versions

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the steps before the first one that is to come, the last of them too."""
        if not trainer.is_global_zero:
            return
        count = trainer.global_step
        paths = list(Path(trainer.default_root_dir).glob("csv*/metrics.csv"))
        for path in paths:
            keep_steps(path, count)
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        is_due = self._last_step and every and count % every == 0
        if is_due and not any(_has_step(path, count - 1, self._last_step) for path in paths):
            row = {"epoch": trainer.current_epoch, **self._last_step}
            for logger in trainer.loggers:
                logger.log_metrics(row, step=count - 1)


def keep_steps(path: Path, count: int) -> None:
    """Keep a CSV's rows up to a step, and drop a row that a kill has cut short."""
    lines = path.read_text().splitlines(keepends=True)
    reader = csv.DictReader(line for line in lines if line.endswith("\n"))
    kept = [row for row in reader if int(row["step"]) < count]
    if reader.fieldnames is None:  # killed within the header
        path.unlink()
    elif len(kept) < len(lines) - 1:
        _write_table(path, kept, reader.fieldnames)


def _has_step(path: Path, step: int, metrics: Mapping[str, float]) -> bool:
    """Whether a row of the table has a step's metrics."""
    rows = csv.DictReader(path.read_text().splitlines()) if path.exists() else ()
    return any(int(row["step"]) == step and all(row.get(name) for name in metrics) for row in rows)


def _write_table(path: Path, rows: Sequence[Mapping[str, Any]], fieldnames: Sequence[str]) -> None:
    with written_whole(path) as whole, whole.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames)
        writer.writeheader()
        writer.writerows(rows)


def wandb_mode() -> str:
    """Online, offline or disabled, without ever asking anybody anything.

    Raises:
        InputError: WANDB_MODE is something else, or online where nobody has logged in.
    """
    wanted = os.environ.get("WANDB_MODE")
    if wanted not in (None, *MODES):
        raise InputError(f"WANDB_MODE is {wanted!r}; give online, offline or disabled, or unset it")
    if wanted == "disabled":
        return wanted
    # Lightning's own call of W&B makes it warn of a setting that nobody has set.
    wandb.setup(wandb.Settings(show_warnings=False))
    if wanted == "offline":
        return wanted
    if wandb.login(prompt=False, verify=False):
        return "online"
    if wanted == "online":
        raise InputError(
            "WANDB_MODE is online, but nobody has logged in; run `wandb login`, "
            "or unset WANDB_MODE to keep the run on this disk"
        )
    return "offline"


@contextmanager
def wandb_within(folder: Path) -> Iterator[None]:
    """Keep the pictures of W&B's run in the run's folder, and end W&B's run with the block.

    Those of an offline run would otherwise pile up under the home folder, out of sight.
    """
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
