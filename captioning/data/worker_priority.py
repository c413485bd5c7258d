"""The scheduling priority of DataLoader workers."""

import os


def lower_priority(worker: int) -> None:
    """Lower a worker's priority below the training process's; a DataLoader `worker_init_fn`.

    A training step's threads synchronise at every layer, so a worker that takes one thread's core
    delays them all. On two cores this makes training a third faster. Workers still get enough
    time, since they run whenever the step waits for data.
    """
    os.nice(10)
