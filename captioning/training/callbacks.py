"""What happens around the steps of a training."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from captioning.errors import InputError
from captioning.kernels import compile_from_now

BEST, LAST = "best", "last"


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint of the best validation, best.ckpt, in the run's folder.

    Args:
        monitor: the validation score that decides.
        mode: ``max`` where higher is better, ``min`` where lower is.
    """

    def __init__(self, monitor: str = "val/BLEU-4", mode: str = "max") -> None:
        super().__init__(filename=BEST, monitor=monitor, mode=mode, enable_version_counter=False)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Place the file."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find a misspelt score before an epoch is spent.

        Raises:
            InputError: validation gives no such score.
        """
        scores = sorted(trainer.callback_metrics)
        if scores and self.monitor not in scores:
            raise InputError(
                f"checkpoints.monitor: validation gives no {self.monitor!r}; "
                f"choose from {', '.join(scores)}"
            )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save, unless the training ends within an epoch, before its first validation."""
        if self.monitor in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember the best score so far, also where the run's folder has been moved."""
        assert self.dirpath is not None
        moved: dict[str, Any] = {"dirpath": self.dirpath}
        best = state_dict["best_model_score"]
        if best is not None:  # none before the first validation
            path = str(Path(self.dirpath) / f"{BEST}{self.FILE_EXTENSION}")
            moved |= {
                "best_model_path": path,
                "kth_best_model_path": path,
                "best_k_models": {path: best},
            }
        super().load_state_dict(state_dict | moved)


class LastCheckpoint(ModelCheckpoint):
    """Keeps last.ckpt, from which a training resumes: at the end of every epoch, or by the clock.

    Lightning's own `save_last` writes only in epochs that are among the best.

    Args:
        minutes: how often, within epochs; none for their ends.
    """

    def __init__(self, minutes: float | None = None) -> None:
        super().__init__(
            filename=LAST,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
            train_time_interval=None if minutes is None else timedelta(minutes=minutes),
        )
        self.minutes = minutes

    @property
    def state_key(self) -> str:
        """The same however often it saves, so that a resumed training may change that."""
        return f"{type(self).__name__} {'of epochs' if self.minutes is None else 'by the clock'}"

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Place the file."""
        self.dirpath = trainer.default_root_dir
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save within an epoch; what follows its last step is saved when the epoch has ended."""
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """There is nothing to remember: the next checkpoint replaces the file wherever it lies."""


class SeededSteps(pl.Callback):
    """Seeds every step by its number, so that a resumed training repeats an uninterrupted one.

    Args:
        seed: the training's seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Seed dropout and whatever else draws from torch's generator."""
        steps = trainer.fit_loop.epoch_loop.total_batch_idx
        ranks_and_steps = steps * trainer.world_size + trainer.global_rank
        torch.manual_seed(self.seed * 1_000_000_007 + ranks_and_steps)


class CompiledSteps(pl.Callback):
    """Compiles the arithmetic of all steps but the first ones, so that only long trainings do.

    It depends on the number of the step alone: a training that resumes computes what it would have
    without the interruption.

    Args:
        after: how many steps come first; if negative, no step is ever compiled.
    """

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin with it."""
        compile_from_now(0 <= self.after <= trainer.global_step)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """End it."""
        compile_from_now(False)
