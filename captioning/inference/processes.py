"""Shares work among processes on one or more machines."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch

from captioning.captioner.captioner import Captioner
from captioning.captioner.device import usable_device
from captioning.data.ranks import run_on_all_ranks
from captioning.errors import InputError, UsageError, ending_signals
from captioning.progress_bar import say

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """How many processes share the work.

    Attributes:
        devices: processes on each machine; on GPUs, each has a device of its own.
        num_nodes: machines.
        device: the kind of device, such as cpu; the best available one by default.
    """

    devices: int = 1
    num_nodes: int = 1
    device: str | None = None

    @property
    def count(self) -> int:
        """The number of processes on all machines."""
        return self.devices * self.num_nodes


ALONE = Processes()
"""Just this process."""


def results(
    captioner: Captioner, compute: Callable[[int, int], Result], processes: Processes = ALONE
) -> list[Result] | None:
    """Compute in every process and collect the results.

    A single process computes in place. Several are started by Lightning, which runs the same
    command in each of them, or by torchrun or SLURM.

    Args:
        captioner: the model, which is moved to the device of each process.
        compute: gives a picklable result from the rank of a process and the number of processes.
        processes: how many share the work.

    Returns:
        The results in rank order; None in all processes but the first.

    Raises:
        InputError: the work failed in one of the processes.
        UsageError: this machine has too few devices.
    """
    if processes.count == 1:
        return [compute(0, 1)]

    from lightning_fabric import Fabric  # late: its import takes seconds
    from lightning_fabric.plugins.environments import LightningEnvironment
    from lightning_fabric.strategies import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=_accelerator(processes),
        devices=processes.devices,
        num_nodes=processes.num_nodes,
        # The fastest process waits for the slowest at the end.
        strategy=DDPStrategy(timeout=timedelta(days=1)),
    )
    parent = os.getppid()
    environment = getattr(fabric.strategy, "cluster_environment", None)
    announce_wait(processes.num_nodes, environment)
    fabric.launch()
    if fabric.local_rank > 0 and isinstance(environment, LightningEnvironment):
        _end_with(parent)
    captioner.to(fabric.device)
    try:
        found = run_on_all_ranks(lambda: compute(fabric.global_rank, fabric.world_size))
    except InputError:
        if fabric.is_global_zero:
            raise
        return None  # the first process reports it
    return found if fabric.is_global_zero else None


def announce_wait(machines: int, environment: Any) -> None:
    """Say for whom the first process of each machine waits before they start together.

    Args:
        machines: their number.
        environment: Lightning's cluster environment.
    """
    if machines > 1 and environment.local_rank() == 0:
        say(
            f"machine {environment.node_rank() + 1} of {machines} waits for the others at "
            f"{environment.main_address}, port {environment.main_port}"
        )


def _end_with(parent: int) -> None:
    """End this process when `parent` ends, and silently after a signal, which both receive."""
    for number in ending_signals():
        signal.signal(number, lambda *_: os._exit(0))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _accelerator(processes: Processes) -> str:
    """Lightning's name for the kind of device."""
    device = processes.device or usable_device()
    if device == "cpu":
        return "cpu"
    if device != "cuda":
        raise UsageError(f"--devices cannot share {device!r}; give --device cpu or cuda")
    if torch.cuda.device_count() < processes.devices:
        raise UsageError(
            f"this machine has {torch.cuda.device_count()} CUDA devices; give --devices no "
            "more, or --device cpu"
        )
    return "cuda"
