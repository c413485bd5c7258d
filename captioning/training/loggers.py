"""Where scores are written: a CSV file and W&B."""

import csv
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
import wandb
from pydantic import BaseModel
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from captioning.errors import InputError
from captioning.evaluation.grounding import GroundingReport
from captioning.files import written_whole
from captioning.terminal import printable
from captioning.training.checkpoints import BestCheckpoint

DATA = "WANDB_DATA_DIR"
"""Where W&B stages the files of tables and artifacts until they are uploaded."""

BOARD_ID = "wandb_id"
"""Where a checkpoint has the id of its W&B run."""

LAST_STEP = "last_step"
"""Where a checkpoint has the metrics of its last step."""


def loggers(folder: Path, config: dict[str, Any], resume: bool) -> list[Logger]:
    """CSV and W&B in the run's folder; a resumed training begins another CSV, csv-2/metrics.csv."""
    earlier = len(list(folder.glob("csv*"))) if resume else 0
    table = CSVLogger(folder, name="", version=f"csv-{earlier + 1}" if earlier else "csv")
    mode = wandb_mode()
    if mode == "disabled":
        return [table]
    board = Board(
        project="captioning",
        name=folder.name,
        save_dir=folder,
        mode=mode,  # Lightning's own `offline` comes too late: W&B has asked for a login by then
        config=config,
        settings=wandb.Settings(silent=mode == "offline"),
    )
    return [table, board]


class EndedRun(BaseModel):
    """A W&B run that has ended by itself or by an interrupt, and the last step of each metric."""

    id: str
    steps: dict[str, int]


class Board(WandbLogger):
    """A W&B run that a resumed training continues, with every step logged once.

    W&B's own step only counts calls; charts are drawn over ``trainer/global_step``, in which a
    training goes back when it resumes from a checkpoint. What an interrupted training had logged
    since then is skipped. Steps of a killed training are logged again: W&B may have lost them.

    Args:
        options: those of `WandbLogger`.
    """

    def __init__(self, **options: Any) -> None:
        self._stages_within = DATA not in os.environ
        self._earlier: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        super().__init__(**options)

    @property
    def experiment(self) -> Any:
        """W&B's run; its staged files are in its own folder, unless WANDB_DATA_DIR is set."""
        is_new = self._experiment is None
        run = super().experiment
        if is_new and self._experiment is not None and self._stages_within:
            stage_within(run)
        return run

    def resume(self, run_id: str) -> None:
        """Continue a run, before anything is logged."""
        self._id = self._wandb_init["id"] = run_id
        try:
            ended = EndedRun.model_validate_json(self._steps.read_text())
        except (OSError, ValueError):  # killed before it was written, or removed
            return
        if ended.id == run_id:  # not that of a run that was overwritten
            self._earlier, self._logged = ended.steps, dict(ended.steps)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log metrics, except those that the run had of this step before it was resumed."""
        if step is None:
            super().log_metrics(metrics)
            return
        new = {name: value for name, value in metrics.items() if step > self._earlier.get(name, -1)}
        if new.keys() - {"epoch"}:
            super().log_metrics(new, step)
            self._logged |= dict.fromkeys(new, step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Keep the last step of each metric; W&B's file has them once the run has ended."""
        super().finalize(status)
        if self._logged:
            with written_whole(self._steps) as path:
                path.write_text(
                    EndedRun(id=self.experiment.id, steps=self._logged).model_dump_json()
                )

    @property
    def _steps(self) -> Path:
        """The file of `EndedRun`."""
        assert self._save_dir is not None
        return Path(self._save_dir) / "wandb" / "steps.json"


def resume_boards(trainer: pl.Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Continue the W&B run of a checkpoint; one without a run's id begins another run."""
    run_id = checkpoint.get(BOARD_ID)
    for logger in trainer.loggers:
        if isinstance(logger, Board) and isinstance(run_id, str):
            logger.resume(run_id)


class EveryStepOnce(pl.Callback):
    """Keeps every step once in a run's CSV files, even if it is killed and resumed.

    Checkpoints also get the id of the W&B run.

    A killed training may have logged steps after its last checkpoint, which are then repeated. It
    may also lack one step: within an epoch, a checkpoint is written before its step is logged.
    """

    def __init__(self) -> None:
        self._last_step: dict[str, float] = {}
        self._board_id: str | None = None

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write what has been logged so far, and store the last step's metrics and the run's id."""
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, Board):
                self._board_id = str(logger.version)
        checkpoint[BOARD_ID] = self._board_id
        checkpoint[LAST_STEP] = {
            name: value.item()
            for name, value in trainer.logged_metrics.items()
            if name.startswith("train/")
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the last step's metrics and the run's id, which W&B may not be there to know."""
        self._last_step = checkpoint[LAST_STEP]
        self._board_id = checkpoint.get(BOARD_ID)

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
    given = os.environ.get(DATA)
    os.environ[DATA] = given or str((folder / "wandb" / "data").absolute())
    try:
        yield
    finally:
        run = wandb.run
        if run is not None:
            run.finish()
            if run.offline:  # by its id, as a resumed run has several folders
                parts = Path(run.dir).parents[1] / f"offline-run-*-{run.id}"
                command = printable(f"wandb sync {parts}")
                print(f"W&B kept this run offline; to upload it: {command}", file=sys.stderr)
            elif given is None:
                shutil.rmtree(_staging(run), ignore_errors=True)
        if given is None:
            del os.environ[DATA]


def stage_within(run: Any) -> None:
    """Let W&B stage the files of a run in its folder, so that both are removed together."""
    os.environ[DATA] = str(_staging(run))


def _staging(run: Any) -> Path:
    return Path(run.dir).absolute().parent / "data"


def log_best(trainer: pl.Trainer, best: BestCheckpoint, settings: Mapping[str, Any]) -> None:
    """Log best.ckpt as an artifact of the W&B run, with the aliases best, latest and epoch-N.

    An offline run keeps it in its own folder, as a hard link where the disk has them: a longer
    training may replace best.ckpt before anybody uploads the run.

    Args:
        trainer: after its training.
        best: the callback that wrote it.
        settings: the configuration, whose model is part of the artifact's metadata.
    """
    path, boards = (
        Path(best.best_model_path),
        [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)],
    )
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
        kept = _linked(path, Path(run.dir).absolute().parent) if run.offline else path
        # Immutable: not copied to the staging files. Not cached: no copy in the home folder.
        artifact.add_file(str(kept), path.name, policy="immutable", skip_cache=True)
        run.log_artifact(artifact, aliases=["best", "latest", f"epoch-{epoch}"])


def _linked(path: Path, folder: Path) -> Path:
    """The file in another folder of the disk, by a hard link or as a copy."""
    link = folder / path.name
    try:
        link.hardlink_to(path)
    except OSError:  # some disks have no links
        shutil.copyfile(path, link)
    return link


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
    is_given = DATA in os.environ
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
        if not is_given:
            stage_within(run)
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
