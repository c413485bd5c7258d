from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel

from captioning.kernels import compiled
from captioning.training.callbacks import NumberedSteps
from captioning.training.train_cli import plain_messages


class Watch(pl.Callback):
    """Notes which steps are compiled; a training may fail at one."""

    def __init__(self, last_step: int | None) -> None:
        self.compiles: list[bool] = []
        self.last_step = last_step

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Look."""
        self.compiles.append(compiled._state["compiles"])
        if len(self.compiles) == self.last_step:
            raise RuntimeError("no memory is left")


def train(
    folder: Path,
    max_epochs: int,
    resumed: Path | None = None,
    after: int = 6,
    last_step: int | None = None,
) -> list[bool]:
    watch = Watch(last_step)
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
    model = BoringModel()
    model.kernels = True
    with plain_messages():
        trainer.fit(model, ckpt_path=resumed, weights_only=True)
    trainer.save_checkpoint(folder / "last.ckpt")
    return watch.compiles


def test_later_steps_are_compiled_also_when_resumed(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3)
    assert whole == [False] * 6 + [True] * 6
    assert not compiled._state["compiles"]  # the training is over
    parts = train(tmp_path / "parts", 1)
    parts += train(tmp_path / "parts", 3, tmp_path / "parts" / "last.ckpt")
    assert parts == whole
