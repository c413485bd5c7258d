"""What a training tells on stderr: a line per epoch and, on a terminal, a moving bar between."""

import sys
import time
from typing import Any

import pytorch_lightning as pl
import torch
from tqdm import tqdm

from captioning.metrics.variety import COUNTS
from captioning.terminal import printable

UNTOLD = ("images", "shortest", "longest", "distinct words")
"""What is logged of a validation but not told, so that an epoch's line stays short."""


class Progress(pl.callbacks.ProgressBar):
    """Bars over the batches where stderr is a terminal; a line with the scores of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled = True
        self._bar: Any = None
        self._losses = torch.zeros(())
        self._steps = 0
        self._started = 0.0
        self._validated = False

    def enable(self) -> None:
        """Show everything."""
        self.enabled = True

    def disable(self) -> None:
        """Show nothing, as in all processes but the first."""
        self.enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print to stderr without breaking a bar."""
        if self.enabled:
            tqdm.write(printable(" ".join(map(str, args))), file=sys.stderr)

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
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix_str(f"loss {outputs['loss'].item():.3f}", refresh=False)
            self._bar.update()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin a bar over the images to caption."""
        self._open("validation", sum(trainer.num_val_batches))

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
        """Take the bar away."""
        self._close()
        self._validated = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Tell the epoch's mean loss and its validation scores."""
        self._close()
        scores = {
            name.removeprefix("val/"): value.item()
            for name, value in trainer.callback_metrics.items()
            if name.startswith("val/") and self._validated  # they stay from an earlier epoch
        }
        shown = [
            f"{name} {value:.0f}" if name in COUNTS else f"{name} {value:.4f}"
            for name, value in scores.items()
            if name not in UNTOLD
        ]
        minutes, seconds = divmod(round(time.monotonic() - self._started), 60)
        loss = self._losses.item() / max(self._steps, 1)
        parts = [self._epoch(trainer), f"loss {loss:.4f}", *shown, f"{minutes}:{seconds:02d} min"]
        self.print("  ".join(parts))

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the terminal clean for what is said about the exception."""
        self._close()

    def _begin(self, trainer: pl.Trainer, batches: int = 0) -> None:
        self._started = time.monotonic()
        self._losses = torch.zeros((), device=trainer.strategy.root_device)
        self._steps = 0
        self._validated = False
        self._open(self._epoch(trainer), self.total_train_batches, batches)

    def _epoch(self, trainer: pl.Trainer) -> str:
        last = trainer.max_epochs
        of = f"/{last}" if last is not None and last > 0 else ""
        return f"epoch {trainer.current_epoch + 1}{of}"

    def _open(self, description: str, batches: int | float, done: int = 0) -> None:
        self._close()
        self._bar = tqdm(
            desc=description,
            total=None if batches == float("inf") else int(batches),
            unit="batch",
            initial=done,
            leave=False,
            disable=None if self.enabled else True,  # None: only where stderr is a terminal
        )

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None
