"""Lightning callbacks around the steps of a training: seeds, compiling, averages, progress."""

import time
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from captioning.kernels import compile_from_now
from captioning.metrics.scores import COUNTS
from captioning.numbers import Checked, Share
from captioning.progress_bar import ProgressBar, duration, say
from captioning.terminal import printable

LOGGED_ONLY = ("images", "shortest", "longest", "distinct words")
"""Validation scores that an epoch's line leaves out, to stay short."""


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
        """Seed torch's generator, which dropout draws from."""
        steps = trainer.fit_loop.epoch_loop.total_batch_idx
        ranks_and_steps = steps * trainer.world_size + trainer.global_rank
        torch.manual_seed(self.seed * 1_000_000_007 + ranks_and_steps)


class CompiledSteps(pl.Callback):
    """Compiles the arithmetic of all steps after the first ones, which pays in long trainings.

    It depends on the step's number alone, so a resumed training computes what an uninterrupted one
    would.

    Args:
        after: number of steps that are not compiled; if negative, no step is compiled.
    """

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Switch compiling on after the first steps."""
        compile_from_now(0 <= self.after <= trainer.global_step)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Switch it off."""
        compile_from_now(False)


class ExponentialAverage(Checked, WeightAveraging):
    """Validates and keeps an exponential moving average of the weights.

    Two differences from Lightning's `EMAWeightAveraging`: the average soon forgets a random start,
    and parameters that are not trained keep their exact bits, so that features of a frozen encoder
    stay valid.

    When fine-tuning a good model, keeping a share of its weights helps on images that neither model
    has seen (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").

    Args:
        decay: share of the average that each step keeps.
        keeps_start: use `decay` from the first step on, so that after n steps the initial weights
            have the share decay^n. Otherwise the decay is lower at first: (1 + step) / (10 + step).
    """

    def __init__(self, decay: Share = 0.999, keeps_start: bool = False) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self._average)
        self.decay = decay
        self.keeps_start = keeps_start

    @torch.no_grad()
    def _average(self, averages: Sequence[Tensor], weights: Sequence[Tensor], step: Tensor) -> None:
        decay = self.decay
        if not self.keeps_start:
            decay = min(decay, (1 + step.item()) / (10 + step.item()))
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, 1 - decay)


class Progress(pl.callbacks.ProgressBar):
    """Bars over the batches on stderr, and one line with the scores of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True
        self._epoch_bar: ProgressBar | None = None
        self._validation_bar: ProgressBar | None = None
        self._losses = torch.zeros(())
        self._steps = 0
        self._began = 0.0
        self._validated = False

    def enable(self) -> None:
        """Report progress."""
        self._enabled = True

    def disable(self) -> None:
        """Report nothing, as in all processes but the first."""
        self._enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print to stderr without breaking a bar."""
        if self._enabled:
            say(printable(" ".join(map(str, args))))

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Print the sizes of the data and the model."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        trained = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
        self.print(
            f"{len(data.train_records)} images to train on, {len(data.val_records)} to validate; "
            f"{len(data.vocabulary.words)} words; {trained:,} parameters to train on "
            f"{trainer.strategy.root_device}"
        )
        if trainer.current_epoch:
            self.print(f"resuming after epoch {trainer.current_epoch}")
        # on_train_epoch_start is not called for an epoch that resumes in its middle.
        self._begin(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin the epoch's bar."""
        self._begin(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the epoch's bar."""
        self._losses += outputs["loss"].detach()  # stays on its device: reading it would wait
        self._steps += 1
        if self._epoch_bar is not None:
            if self._epoch_bar.is_moving:
                self._epoch_bar.show(f"loss {outputs['loss'].item():.3f}")
            self._epoch_bar.update()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin a bar over the validation images."""
        is_check = trainer.sanity_checking
        batches = trainer.num_sanity_val_batches if is_check else trainer.num_val_batches
        name = "check of the validation" if is_check else "validation"
        self._validation_bar = self._bar(name, sum(batches))

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Move the bar."""
        if self._validation_bar is not None:
            self._validation_bar.update()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Remove the bar."""
        if self._validation_bar is not None:
            self._validation_bar.close()
        self._validated = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Print the epoch's mean loss and its validation scores."""
        self._close()
        scores = {
            name.removeprefix("val/"): value.item()
            for name, value in trainer.callback_metrics.items()
            if name.startswith("val/") and self._validated  # they stay from an earlier epoch
        }
        shown = [
            f"{name} {value:.0f}" if name in COUNTS else f"{name} {value:.4f}"
            for name, value in scores.items()
            if name not in LOGGED_ONLY
        ]
        loss = f"loss {self._losses.item() / max(self._steps, 1):.4f}"
        minutes = f"{duration(time.monotonic() - self._began)} min"
        self.print("  ".join([_epoch(trainer), loss, *shown, minutes]))

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Clear the terminal for the error message."""
        self._close()

    def _begin(self, trainer: pl.Trainer, batches: int = 0) -> None:
        self._close()
        self._began = time.monotonic()
        self._losses = torch.zeros((), device=trainer.strategy.root_device)
        self._steps = 0
        self._validated = False
        self._epoch_bar = self._bar(_epoch(trainer), self.total_train_batches, batches)

    def _bar(self, name: str, batches: int | float, done: int = 0) -> ProgressBar:
        total = None if batches == float("inf") else int(batches)
        return ProgressBar(name, "batches", total, initial=done, shown=self._enabled)

    def _close(self) -> None:
        for bar in (self._validation_bar, self._epoch_bar):
            if bar is not None:
                bar.close()


def _epoch(trainer: pl.Trainer) -> str:
    last = trainer.max_epochs
    of = f"/{last}" if last is not None and last > 0 else ""
    return f"epoch {trainer.current_epoch + 1}{of}"
