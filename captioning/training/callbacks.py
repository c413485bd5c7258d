"""Lightning callbacks of a training: averages, early stopping, progress."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, WeightAveraging
from torch import Tensor

from captioning.metrics.scores import INTEGER_STATISTICS
from captioning.progress_bar import ProgressBar, say

LOGGED_ONLY = ("images", "shortest", "longest", "distinct words")
"""Validation scores that an epoch's line leaves out, to stay short."""


class ExponentialAverage(WeightAveraging):
    """Validates and keeps an exponential moving average of the weights.

    Unlike Lightning's `EMAWeightAveraging`, it soon forgets a random start, and parameters that are
    not trained keep their exact bits, so that features of a frozen encoder stay valid. A share of a
    good model's weights helps on new images (Wortsman et al. 2022, "Robust fine-tuning of zero-shot
    models").

    Args:
        decay: share of the average that each step keeps.
        keeps_start: use `decay` from the first step on, so that after n steps the initial weights
            have the share decay^n. Otherwise the decay is lower at first: (1 + step) / (10 + step).
    """

    def __init__(self, decay: float = 0.999, keeps_start: bool = False) -> None:
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


class StopEarly(EarlyStopping):
    """Lightning's `EarlyStopping`, counting validations from the first score above 0.

    Trained on few photos, a model scores 0 for epochs before its first captions match.
    """

    def _run_early_stopping_check(self, trainer: pl.Trainer) -> None:
        score = trainer.callback_metrics.get(self.monitor)
        if score is None or not is_at_zero(self.mode, score, self.best_score):
            super()._run_early_stopping_check(trainer)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the validations so far, but with the configuration's patience."""
        super().load_state_dict(state_dict | {"patience": self.patience})
        self.stopping_reason_message = None


def is_at_zero(mode: str, score: Tensor, best: Tensor | None = None) -> bool:
    """Whether a score that should rise, and the best score so far, are 0 as printed.

    The COCO evaluation's BLEU without a single match is not quite 0.
    """
    highest = score.item() if best is None else max(score.item(), best.item())
    return mode == "max" and score.item() >= 0 and highest < 5e-5


@dataclass(eq=False)
class Progress(pl.Callback):
    """Bars over the batches on stderr, and one line with the scores of each epoch."""

    bars: list[ProgressBar] = field(default_factory=list)  # of an epoch, a validation within it
    began: float = 0.0
    has_validated: bool = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.began = time.monotonic()
        if not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        parameters = [p for p in pl_module.parameters() if p.requires_grad]
        count = sum(parameter.numel() for parameter in parameters)
        say(
            f"{len(data.train_records)} images to train on, {len(data.val_records)} to validate; "
            f"{len(data.vocabulary.words)} words; {count:,} parameters to train on "
            f"{trainer.strategy.root_device}"
        )
        if trainer.current_epoch:
            say(f"resuming after epoch {trainer.current_epoch}")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self.bars:
            batches, epochs = int(trainer.num_training_batches), trainer.max_epochs
            total = f"/{epochs}" if epochs and epochs > 0 else ""
            self.epoch = f"epoch {trainer.current_epoch + 1}{total}"
            self.bars = [ProgressBar(self.epoch, "batches", batches, initial=batch_idx)]
        [bar] = self.bars
        if bar.is_moving:  # reading the loss waits for its device
            bar.set_postfix_str(f"loss {outputs['loss'].item():.3f}", refresh=False)
        bar.update()

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if batch_idx == 0:
            name, batches = "validation", trainer.num_val_batches
            if trainer.sanity_checking:
                name, batches = "check of the validation", trainer.num_sanity_val_batches
            self.bars.append(ProgressBar(name, "batches", int(sum(batches))))
        self.bars[-1].update()
        if batch_idx + 1 == self.bars[-1].total:
            self.bars.pop().close()
            self.has_validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not self.bars:  # resumed where an epoch had ended
            return
        self.bars.pop().close()
        scores = trainer.callback_metrics
        parts = [self.epoch, f"loss {scores['loss'].item():.4f}"]
        for name, value in scores.items():
            score = name.removeprefix("val/")
            # Without a validation in this epoch, the scores are an earlier one's.
            if self.has_validated and name != score and score not in LOGGED_ONLY:
                precision = ".0f" if score in INTEGER_STATISTICS else ".4f"
                parts.append(f"{score} {value.item():{precision}}")
        parts.append(f"{ProgressBar.format_interval(time.monotonic() - self.began)} min")
        if trainer.is_global_zero:
            say("  ".join(parts))
        self.has_validated = False
        self.began = time.monotonic()

    def on_exception(self, *_: Any) -> None:
        while self.bars:
            self.bars.pop().close()
