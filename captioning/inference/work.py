"""The interface of work that one or more processes share, on one or more machines."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from captioning.captioner.captioner import Captioner


@dataclass(frozen=True)
class Processes:
    """How many processes share the work.

    Attributes:
        devices: processes on each machine; on GPUs, each has a device of its own.
        num_nodes: machines.
        device: the kind of device, such as cpu; the best available one if none.
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


class Work(ABC):
    """Batches for a captioner, which any number of processes can share.

    Attributes:
        captioner: the model; `captioning.inference.run_work.results` moves it to the process's
            device.
    """

    captioner: Captioner

    @abstractmethod
    def prepare(self, processes: int) -> None:
        """Prepare the work; called in the first process, before anything else.

        Args:
            processes: how many processes share the work.

        Raises:
            InputError: the work cannot be done.
        """

    @abstractmethod
    def batches(self, process: int, processes: int) -> Iterator[Any]:
        """The batches of one process.

        The union over all processes does not depend on their number, so the results do not either.

        Args:
            process: the rank of the process, from 0 over all machines.
            processes: how many processes share the work.
        """

    @abstractmethod
    def step(self, batch: Any) -> None:
        """Do one of the process's own batches."""

    @abstractmethod
    def result(self) -> Any:
        """The picklable result of this process, after its batches."""
