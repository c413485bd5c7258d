"""Distributes work over the processes of Lightning's predict loop."""

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import DDPStrategy

from captioning.captioner.device import usable_device
from captioning.errors import InputError, UsageError
from captioning.inference.work import Processes, Work

PATIENCE = timedelta(days=1)
"""Timeout of the fastest process, which waits for the slowest at the beginning and the end."""


class Prediction(pl.LightningModule):
    """One process's share of the work.

    Args:
        work: the work.

    Attributes:
        results: the results of all processes, once all are done.
        error: the error that stopped a process, if any.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.captioner = work.captioner  # among the submodules, so that Lightning moves it
        self.results: list[Any] = []
        self.error: str | None = None
        self._preparation = ExitStack()
        self._parent = os.getppid()

    def predict_dataloader(self) -> Iterator[Any]:
        """The batches of this process."""
        return self._without_errors(
            self.work.batches(self.trainer.global_rank, self.trainer.world_size)
        )

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Leave the batch on the CPU; the step moves the parts that it needs."""
        return batch

    def on_predict_start(self) -> None:
        """Pack the weights of the model, now on its device, and exit on SIGTERM.

        Lightning's own handler of SIGTERM waits for a training's next step.
        """
        self._preparation.enter_context(self.captioner.prepared())
        signal.signal(signal.SIGTERM, self._terminate)

    def on_predict_end(self) -> None:
        """Release the packed weights."""
        self._preparation.close()

    def predict_step(self, batch: Any, batch_idx: int) -> bool:
        """Do a batch; bad input ends the work of this process only.

        Stopping the others would need a synchronisation at every batch.
        """
        if self._is_orphan():
            raise SystemExit(1)
        try:
            if self.error is None:
                self.work.step(batch)
        except InputError as error:
            self.error = str(error)
        return self.error is None

    def on_predict_epoch_end(self) -> None:
        """Gather the results of all processes."""
        mine = (None, self.error) if self.error is not None else (self.work.result(), None)
        found: list[Any] = [None] * self.trainer.world_size
        torch.distributed.all_gather_object(found, mine)
        self.results = [result for result, _ in found]
        self.error = next((error for _, error in found if error is not None), None)

    def _is_orphan(self) -> bool:
        """Whether the process that started this one has gone, perhaps killed."""
        strategy: Any = self.trainer.strategy
        is_child = strategy.local_rank > 0 and isinstance(
            strategy.cluster_environment, LightningEnvironment
        )
        return is_child and os.getppid() != self._parent

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        launcher = self.trainer.strategy.launcher
        if launcher is not None:
            launcher.kill(signal.SIGTERM)  # its child processes
        raise SystemExit(128 + number)

    def _without_errors(self, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            for batch in batches:
                yield batch
                if self.error is not None:
                    return
        except InputError as error:
            self.error = str(error)


def predicted(work: Work, processes: Processes) -> list[Any] | None:
    """Do the work in several processes; see `captioning.inference.run_work.results`."""
    for name in ("pytorch_lightning", "lightning_fabric"):  # reports on devices, advertisements
        logging.getLogger(name).setLevel(logging.WARNING)
    trainer = pl.Trainer(
        accelerator=_accelerator(processes),
        devices=processes.devices,
        num_nodes=processes.num_nodes,
        strategy=DDPStrategy(timeout=PATIENCE),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        inference_mode=False,  # there, autocast would cast all weights anew at every word
    )
    if trainer.is_global_zero:  # true in the launching process, before the others start
        work.prepare(processes.count)
    module = Prediction(work)
    try:
        with warnings.catch_warnings():
            # This warning is about Lightning's own code.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            trainer.predict(module, return_predictions=False)
    except SystemExit as exit:  # raised by Lightning after an interrupt
        if trainer.is_global_zero and isinstance(exit.__context__, KeyboardInterrupt):
            raise exit.__context__ from None
        raise
    if not trainer.is_global_zero:
        return None
    if module.error is not None:
        raise InputError(module.error)
    return module.results


def _accelerator(processes: Processes) -> str:
    """Lightning's name for the kind of device.

    Raises:
        UsageError: this machine has too few devices.
    """
    device = processes.device or usable_device()
    if device == "cpu":
        return "cpu"
    if device != "cuda":
        raise UsageError(f"--devices cannot share out {device!r}; give --device cpu or cuda")
    if torch.cuda.device_count() < processes.devices:
        raise UsageError(
            f"this machine has {torch.cuda.device_count()} CUDA devices; give --devices no "
            "more, or --device cpu"
        )
    return "cuda"
