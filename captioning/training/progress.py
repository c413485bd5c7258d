"""What a training tells on stderr: a line per epoch, and between them how far it is."""

import time
from typing import Any

import pytorch_lightning as pl
import torch

from captioning.metrics.words import COUNTS
from captioning.progress_bar import ProgressBar, duration, say
from captioning.terminal import printable
from captioning.training.validation_grounding import SCORES

UNTOLD = ("images", "shortest", "longest", "distinct words")
"""What is logged of a validation but not told, so that an epoch's line stays short."""


class Progress(pl.callbacks.ProgressBar):
    """Bars over the batches; a line with the scores of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled = True
        self._bar: ProgressBar | None = None
        self._losses = torch.zeros(())
        self._steps = 0
        self._started = 0.0
        self._validated = False
        self._validation_began = 0.0
        self._validation_seconds: float | None = None

    def enable(self) -> None:
        """Show everything."""
        self.enabled = True

    def disable(self) -> None:
        """Show nothing, as in all processes but the first."""
        self.enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print to stderr without breaking a bar."""
        if self.enabled:
            say(printable(" ".join(map(str, args))))

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Say what is trained, on what."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        captioner = pl_module.captioner
        trained = sum(p.numel() for p in captioner.parameters() if p.requires_grad)
        self.print(
            f"{len(data.train_records)} images to train on, {len(data.val_records)} to validate; "
            f"{len(captioner.vocabulary.words)} words; {trained:,} parameters to train on "
            f"{trainer.strategy.root_device}"
        )
        if trainer.current_epoch:
            self.print(f"resuming after epoch {trainer.current_epoch}")
        # No beginning is told of an epoch that resumes in its middle.
        self._begin(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin the epoch's bar."""
        self._begin(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar by one batch."""
        self._losses += outputs["loss"].detach()  # stays on its device: reading it would wait
        self._steps += 1
        if self._bar is not None:
            if self._bar.is_moving:
                self._bar.show(f"loss {outputs['loss'].item():.3f}")
            self._bar.update()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin a bar over the images to caption."""
        is_check = trainer.sanity_checking
        batches = trainer.num_sanity_val_batches if is_check else trainer.num_val_batches
        self._open("check of the validation" if is_check else "validation", sum(batches))
        self._validation_began = time.monotonic()

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Move the bar by one batch."""
        if self._bar is not None:
            self._bar.update()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Take the bar away, and go on with that of an epoch which has not ended."""
        self._close()
        self._validated = True
        if trainer.sanity_checking:
            return
        self._validation_seconds = time.monotonic() - self._validation_began
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if not progress.is_last_batch:
            self._open_epoch(trainer, progress.current.ready)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Tell the epoch's mean loss and its validation scores."""
        self._close()
        scores = {
            name.removeprefix("val/"): value.item()
            for name, value in trainer.callback_metrics.items()
            if name.startswith("val/") and self._validated  # they stay from an earlier epoch
        }
        told = [name for name in scores if name not in UNTOLD]
        told.sort(key=lambda name: name in SCORES.values())  # grounding last, in every epoch
        shown = [
            f"{name} {scores[name]:.0f}" if name in COUNTS else f"{name} {scores[name]:.4f}"
            for name in told
        ]
        loss = self._losses.item() / max(self._steps, 1)
        parts = [self._epoch(trainer), f"loss {loss:.4f}", *shown]
        parts.append(f"{duration(time.monotonic() - self._started)} min")
        self.print("  ".join(parts))

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the terminal clean for what is said about the exception."""
        self._close()

    def _begin(self, trainer: pl.Trainer, batches: int = 0) -> None:
        self._started = time.monotonic()
        self._losses = torch.zeros((), device=trainer.strategy.root_device)
        self._steps = 0
        self._validated = False
        self._open_epoch(trainer, batches)

    def _epoch(self, trainer: pl.Trainer) -> str:
        last = trainer.max_epochs
        of = f"/{last}" if last is not None and last > 0 else ""
        return f"epoch {trainer.current_epoch + 1}{of}"

    def _open_epoch(self, trainer: pl.Trainer, done: int) -> None:
        self._open(self._epoch(trainer), self.total_train_batches, done, trainer)

    def _open(
        self,
        name: str,
        batches: int | float,
        done: int = 0,
        training: pl.Trainer | None = None,
    ) -> None:
        self._close()
        self._bar = ProgressBar(
            name,
            "batches",
            total=None if batches == float("inf") else int(batches),
            initial=done,
            shown=self.enabled,
            note=None if training is None else lambda: self._whole(training),
        )

    def _whole(self, trainer: pl.Trainer) -> str | None:
        """What the training takes at most, once a validation has been timed."""
        bar, seconds = self._bar, self._validation_seconds
        if bar is None or bar.rate is None or bar.total is None or bar.seconds_left is None:
            return None
        every = trainer.check_val_every_n_epoch
        if not trainer.max_epochs or trainer.max_epochs < 0 or seconds is None or not every:
            return None
        coming = range(trainer.current_epoch, trainer.max_epochs)
        validations = sum((epoch + 1) % every == 0 for epoch in coming)
        left = bar.seconds_left + (len(coming) - 1) * bar.total / bar.rate + validations * seconds
        return f"{duration(left)} for all epochs"

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None
