from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel

from captioning.kernels import compiled
from captioning.training.callbacks import NumberedSteps
from captioning.training.train_cli import plain_messages


class Watch(pl.Callback):
    """Notes which steps are compiled."""

    def __init__(self) -> None:
        self.compiles: list[bool] = []

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Look."""
        self.compiles.append(compiled._Job.compiles)


def train(folder: Path, max_epochs: int, resumed: Path | None = None, after: int = 6) -> list[bool]:
    watch = Watch()
    trainer = pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        max_epochs=max_epochs,
        limit_train_batches=4,
        limit_val_batches=0,
        callbacks=[NumberedSteps(0, after), watch],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    with plain_messages():
        trainer.fit(BoringModel(), ckpt_path=resumed, weights_only=True)
    trainer.save_checkpoint(folder / "last.ckpt")
    return watch.compiles


def test_steps_are_compiled_after_the_first_ones_also_when_resumed(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3)
    assert whole == [False] * 6 + [True] * 6
    assert not compiled._Job.compiles  # the training is over
    parts = train(tmp_path / "parts", 1)
    parts += train(tmp_path / "parts", 3, tmp_path / "parts" / "last.ckpt")
    assert parts == whole


def test_steps_are_not_compiled_where_that_is_not_wanted(tmp_path: Path) -> None:
    assert not any(train(tmp_path, 1, after=-1))
