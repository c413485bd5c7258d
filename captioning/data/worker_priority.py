"""Processes that read photos beside the one that computes."""

import os


def lower_priority(worker: int) -> None:
    """Let the process that computes go first; a `worker_init_fn` of torch's DataLoader.

    A step's threads wait for each other at every layer, so a reader that takes the core of one of
    them holds up all. On two cores training becomes a third faster this way, and the reader still
    has enough: it goes on whenever the step waits for it.
    """
    os.nice(10)
