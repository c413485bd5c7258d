"""Work that one process does alone, or several share on one machine or on many."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from captioning.captioner.captioner import Captioner


@dataclass(frozen=True)
class Processes:
    """How many processes share the work.

    Attributes:
        devices: processes on each machine, each on a device of its own where those are GPUs.
        num_nodes: machines.
        device: what kind of device they compute on, such as cpu; the best one there is if none.
    """

    devices: int = 1
    num_nodes: int = 1
    device: str | None = None

    @property
    def count(self) -> int:
        """All processes on all machines."""
        return self.devices * self.num_nodes


ALONE = Processes()
"""One process, this one."""


class Work(ABC):
    """Batches for a captioner, which any number of processes can divide among themselves.

    Attributes:
        captioner: the model; `captioning.inference.run_work.results` sees to it that it is on
            the process's device.
    """

    captioner: Captioner

    @abstractmethod
    def prepare(self, processes: int) -> None:
        """Find out what there is to do; called in the first process, before all else.

        Raises:
            InputError: it cannot be done.
        """

    @abstractmethod
    def batches(self, process: int, processes: int) -> Iterator[Any]:
        """The batches of one process.

        The batches of all processes together are the same however many there are, so that the
        results are too.

        Args:
            process: which one, counted from 0 over all machines.
            processes: how many there are.
        """

    @abstractmethod
    def step(self, batch: Any) -> None:
        """Do one of the process's own batches."""

    @abstractmethod
    def result(self) -> Any:
        """What this process has found, once its batches are done; can be pickled."""
